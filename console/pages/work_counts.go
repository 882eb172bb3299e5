package pages

import (
	"context"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/operator"
)

// countsFresh is how long the numbers beside the navigation are taken from the last look.
const countsFresh = 3 * time.Second

// workCounts remembers how much waits for an operator, so that many open pages cost one look.
type workCounts struct {
	mu   sync.Mutex
	at   time.Time
	last operator.Overview
}

// current returns what waits, some seconds old at most. What cannot be counted is left as it was: the page is about something else.
func (c *workCounts) current(ctx context.Context, waiting operator.Waiting) operator.Overview {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < countsFresh {
		return c.last
	}
	if found, err := waiting.Overview(ctx); err == nil {
		c.last, c.at = found, time.Now()
	}
	return c.last
}

// forget makes the next look a new one: something was done about what waits.
func (c *workCounts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// keptWork says of which records there is at least one. They wait for no one, so they are not counted.
type keptWork struct{ Mail, Reports, Suppressed bool }

// keptCounts remembers that, as workCounts does for what waits.
type keptCounts struct {
	mu   sync.Mutex
	at   time.Time
	last keptWork
}

// current looks for the newest record of each kind, every few seconds at most. What cannot be read is left as it was.
func (c *keptCounts) current(ctx context.Context, o *operator.Operator) keptWork {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < countsFresh {
		return c.last
	}

	mail, err := o.Mail.List(ctx, exchange.MailFilter{Limit: 1})
	if err != nil {
		return c.last
	}
	reports, err := o.Mail.Reports(ctx, exchange.ReportFilter{Unproven: true, Limit: 1})
	if err != nil {
		return c.last
	}
	suppressed, err := anySuppressed(ctx, o)
	if err != nil {
		return c.last
	}
	c.last, c.at = keptWork{Mail: len(mail) > 0, Reports: len(reports) > 0, Suppressed: suppressed}, time.Now()
	return c.last
}

// forget makes the next look a new one.
func (c *keptCounts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

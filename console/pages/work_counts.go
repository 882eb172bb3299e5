package pages

import (
	"context"
	"sync"
	"time"

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

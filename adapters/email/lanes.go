package email

import (
	"context"
	"sync"
	"time"

	"inbox/internal/bounded"

	"github.com/emersion/go-smtp"
)

const (
	laneGrowth  = 5 // mails taken in a row before a domain gets one more session
	maxDomains  = 10_000
	burstWindow = 10 * time.Minute
	burstLimit  = 3         // refusals by policy inside burstWindow that stop a domain
	burstPause  = time.Hour // for how long
)

// lanes bound the sessions at once with one domain: two at first, more while it takes what it gets.
type lanes struct {
	mu      sync.Mutex
	domains map[string]*lane
}

type lane struct {
	allowed, used, users, streak int
	changed                      chan struct{}
}

func newLanes() *lanes { return &lanes{domains: map[string]*lane{}} }

// enter waits for a free session. The returned function says how it went.
func (l *lanes) enter(ctx context.Context, domain string) (leave func(well bool), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.join(domain)
	for one.used >= one.allowed {
		if err := l.wait(ctx, one.changed); err != nil {
			one.users--
			return nil, err
		}
	}
	one.used++
	return func(well bool) { l.leave(one, well) }, nil
}

// wait gives the lock away until somebody has left.
func (l *lanes) wait(ctx context.Context, changed <-chan struct{}) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lanes) join(domain string) *lane {
	one := l.domains[domain]
	if one == nil {
		if len(l.domains) >= maxDomains {
			bounded.MakeRoom(l.domains, func(idle *lane) bool { return idle.users == 0 })
		}
		one = &lane{allowed: startingLanes, changed: make(chan struct{})}
		l.domains[domain] = one
	}
	one.users++
	return one
}

func (l *lanes) leave(one *lane, well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.used--
	one.users--
	if one.streak++; !well {
		one.streak, one.allowed = 0, startingLanes
	}
	if one.streak >= laneGrowth {
		one.streak, one.allowed = 0, min(one.allowed+1, maxLanes)
	}
	close(one.changed)
	one.changed = make(chan struct{})
}

// bursts stop the mail to a domain that refuses what comes from here by its policy (5.7.26, 4.7.28): to go on would make
// our reputation worse.
type bursts struct {
	mu      sync.Mutex
	now     func() time.Time
	domains map[string]*burst
}

type burst struct {
	refused []time.Time
	until   time.Time
}

func newBursts(now func() time.Time) *bursts { return &bursts{now: now, domains: map[string]*burst{}} }

// hold says for how long nothing is sent to the domain.
func (b *bursts) hold(domain string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.domains[domain]; one != nil {
		return max(one.until.Sub(b.now()), 0)
	}
	return 0
}

// note reads the answers of one attempt.
func (b *bursts) note(domain string, result outcome, err error) {
	if !byPolicy(result, err) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	one := b.domains[domain]
	if one == nil {
		if len(b.domains) >= maxDomains {
			bounded.MakeRoom(b.domains, func(idle *burst) bool { return now.After(idle.until) })
		}
		one = &burst{}
		b.domains[domain] = one
	}
	recent := one.refused[:0]
	for _, at := range one.refused {
		if now.Sub(at) < burstWindow {
			recent = append(recent, at)
		}
	}
	recent = append(recent, now)
	if one.refused = recent; len(recent) >= burstLimit {
		one.refused, one.until = nil, now.Add(burstPause)
	}
}

func byPolicy(result outcome, err error) bool {
	for _, one := range append(result.refused, result.later...) {
		if policyCode(one.answer) {
			return true
		}
	}
	return policyCode(answerIn(err))
}

func policyCode(answer *smtp.SMTPError) bool {
	if answer == nil {
		return false
	}
	switch answer.EnhancedCode {
	case smtp.EnhancedCode{5, 7, 26}, smtp.EnhancedCode{4, 7, 26}, smtp.EnhancedCode{4, 7, 28}, smtp.EnhancedCode{5, 7, 28}:
		return true
	}
	return false
}

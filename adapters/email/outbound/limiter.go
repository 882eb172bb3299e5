package outbound

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"inbox/exchange"
)

const (
	growAfter     = 5 // mails taken in a row before a domain gets one more session
	maxDomains    = 10_000
	refusalWindow = 10 * time.Minute
	refusalLimit  = 3         // refusals by policy inside refusalWindow that stop a domain
	refusalPause  = time.Hour // for how long
)

// domainLimits bound the sessions at once with one domain: two at first, more while it takes what it gets.
type domainLimits struct {
	mu     sync.Mutex
	known  *simplelru.LRU[string, *sessionLimit]
	active map[string]*sessionLimit // those in use, which known may forget: a new limit would allow new sessions beside the open ones
}

type sessionLimit struct {
	allowed, used, users, streak int
	changed                      chan struct{}
}

func newDomainLimits() *domainLimits {
	known, _ := simplelru.NewLRU[string, *sessionLimit](maxDomains, nil)
	return &domainLimits{known: known, active: map[string]*sessionLimit{}}
}

// acquire waits for a free session. The returned function ends it and reports how it went.
func (l *domainLimits) acquire(ctx context.Context, domain string) (release func(failure error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	one := l.join(domain)
	for one.used >= one.allowed {
		if err := l.wait(ctx, one.changed); err != nil {
			l.leave(domain, one)
			return nil, err
		}
	}

	one.used++
	return func(failure error) { l.release(domain, one, failure) }, nil
}

// wait releases the lock until a session has ended.
func (l *domainLimits) wait(ctx context.Context, changed <-chan struct{}) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *domainLimits) join(domain string) *sessionLimit {
	one, active := l.active[domain]
	if !active {
		var known bool
		if one, known = l.known.Get(domain); !known {
			one = &sessionLimit{allowed: startingSessions, changed: make(chan struct{})}
			l.known.Add(domain, one)
		}
		l.active[domain] = one
	}
	one.users++
	return one
}

func (l *domainLimits) leave(domain string, one *sessionLimit) {
	if one.users--; one.users > 0 {
		return
	}
	delete(l.active, domain)
	if !l.known.Contains(domain) {
		l.known.Add(domain, one)
	}
}

// release ends a session. What the domain answered about a recipient says nothing about how many sessions it takes.
func (l *domainLimits) release(domain string, one *sessionLimit, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	one.used--
	l.leave(domain, one)
	switch {
	case failure == nil:
		one.streak++
	case exchange.ReachOf(failure) != exchange.ReachRecipient:
		one.streak, one.allowed = 0, startingSessions
	}

	if one.streak >= growAfter {
		one.streak, one.allowed = 0, min(one.allowed+1, mostSessions)
	}

	close(one.changed)
	one.changed = make(chan struct{})
}

// pauses stop the mail to a domain that refuses what comes from here by its policy (5.7.26, 4.7.28): to go on would make
// our reputation worse. Each recipient counts once: one who refuses us by a rule of their own stops no one else.
type pauses struct {
	mu      sync.Mutex
	now     func() time.Time
	domains *simplelru.LRU[string, *pause]
}

type pause struct {
	refused map[string]time.Time // by recipient
	until   time.Time
}

func newPauses(now func() time.Time) *pauses {
	domains, _ := simplelru.NewLRU[string, *pause](maxDomains, nil)
	return &pauses{now: now, domains: domains}
}

// remaining returns for how long nothing is sent to the domain.
func (b *pauses) remaining(domain string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, known := b.domains.Get(domain); known {
		return max(one.until.Sub(b.now()), 0)
	}
	return 0
}

// note reads the answers of one attempt.
func (b *pauses) note(mail Mail, result Outcome, err error) {
	if !byPolicy(result, err) {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	now := b.now()
	one, known := b.domains.Get(mail.Domain)
	if !known {
		one = &pause{refused: map[string]time.Time{}}
		b.domains.Add(mail.Domain, one)
	}

	maps.DeleteFunc(one.refused, func(_ string, at time.Time) bool { return now.Sub(at) >= refusalWindow })
	one.refused[mail.Recipients[0]] = now
	if len(one.refused) >= refusalLimit {
		clear(one.refused)
		one.until = now.Add(refusalPause)
	}
}

func byPolicy(result Outcome, err error) bool {
	for _, one := range append(result.Refused, result.Later...) {
		if policyCode(one.Answer) {
			return true
		}
	}
	return policyCode(AnswerIn(err))
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

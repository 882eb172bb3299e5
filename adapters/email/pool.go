package email

import (
	"sync"
	"time"
)

// sessionPool keeps a few idle sessions for a short while. The zero value is ready.
type sessionPool struct {
	mu     sync.Mutex
	idle   []*clientSession
	timer  *time.Timer
	closed bool
}

// take gives the session that was used last, or nil.
func (p *sessionPool) take() *clientSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	session := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return session
}

// give keeps a session for the next mail, or ends it when there are enough.
func (p *sessionPool) give(session *clientSession) {
	session.since = time.Now()
	p.mu.Lock()
	if p.closed || len(p.idle) >= maxIdleKept {
		p.mu.Unlock()
		session.end(true)
		return
	}
	p.idle = append(p.idle, session)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleKept, p.expire)
	}
	p.mu.Unlock()
}

// expire ends sessions that were idle too long; the oldest stand first.
func (p *sessionPool) expire() {
	p.mu.Lock()
	var old []*clientSession
	for len(p.idle) > 0 && time.Since(p.idle[0].since) >= idleKept {
		old, p.idle = append(old, p.idle[0]), p.idle[1:]
	}
	p.timer = nil
	if len(p.idle) > 0 && !p.closed {
		p.timer = time.AfterFunc(idleKept, p.expire)
	}
	p.mu.Unlock()
	for _, session := range old {
		session.end(true)
	}
}

func (p *sessionPool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, session := range idle {
		session.end(true)
	}
}

// domainPools keep sessions for each domain: mail servers of many domains at once, of which few are used again.
type domainPools struct {
	mu      sync.Mutex
	domains map[string]*domainPool
	closed  bool
}

type domainPool struct {
	sessionPool
	users int
}

func newDomainPools() *domainPools { return &domainPools{domains: map[string]*domainPool{}} }

// of gives the pool of a domain; done must follow.
func (p *domainPools) of(domain string) *sessionPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.domains[domain]
	if one == nil {
		p.forgetIdle()
		one = &domainPool{}
		one.closed = p.closed
		p.domains[domain] = one
	}
	one.users++
	return &one.sessionPool
}

func (p *domainPools) done(domain string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.domains[domain]; one != nil {
		one.users--
	}
}

// forgetIdle drops the pools of domains that nothing is sent to and that keep no session.
func (p *domainPools) forgetIdle() {
	for domain, one := range p.domains {
		if one.users == 0 && one.empty() {
			delete(p.domains, domain)
		}
	}
}

func (p *domainPools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, one := range p.domains {
		one.close()
	}
}

func (p *sessionPool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) == 0
}

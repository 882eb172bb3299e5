package pull

import "time"

// presence counts who works for an agent on this node: the requests that wait for a turn, and the turns that a program
// has. So many turns it may have at once; the others wait without a run, and nothing is offered to nobody.
type presence struct {
	waiting int
	working int
	empty   time.Time // when the last request ended that got nothing: its program comes again
}

// limit returns how many turns may be with the agent at once.
func (p presence) limit(now time.Time) int {
	expected := p.waiting
	if expected == 0 && !p.empty.IsZero() && now.Sub(p.empty) < Linger {
		expected = 1 // programs that ask without waiting are never there
	}
	return p.working + expected
}

// Limit returns how many turns the agent may have at once on this node now: one for each request that waits, and those that
// programs work on.
func (a *Agent) Limit() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence.limit(time.Now())
}

// wait counts a request that waits for a turn; the returned function reports whether it got one.
func (a *Agent) wait() (done func(taken bool)) {
	a.mu.Lock()
	a.presence.waiting++
	a.mu.Unlock()
	a.service.options.Arrived(a.name)
	return func(taken bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.presence.waiting--
		if !taken {
			a.presence.empty = time.Now()
		}
	}
}

// work counts a turn that a program has, until done.
func (a *Agent) work() (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.presence.working++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.presence.working--
	}
}

// deserted reports whether no program is there that could take an offer, and none is expected.
func (a *Agent) deserted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence.limit(time.Now()) == a.presence.working
}

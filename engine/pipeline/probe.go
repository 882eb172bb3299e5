package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/exchange"
)

const (
	// probeLimit is longer than the time limits of a connection, so that a missing connection is seen as one.
	probeLimit = 8 * time.Second
	// watchEvery is how often a node reads the outages that others noted.
	watchEvery = 5 * time.Second
	// MaxHastened bounds the turns that the end of an outage brings forward in one transaction. Further ones keep their places.
	MaxHastened = 5000
)

// Probed is an agent whose back end can be asked without a message whether it works: Probe returns why it does not. A probe costs nothing.
type Probed interface {
	Probe(ctx context.Context) error
}

// prober probes the back ends of agents after a first failure, so that an outage is noted before several messages met it and its end is
// noticed without one. What it remembers decides when it probes; outages are rows.
type prober struct {
	*breaker
	mu     sync.Mutex
	failed map[string]suspicion // by agent: a run failed, and no probe has answered since
	probes map[string]*probing  // by agent
	wake   chan struct{}
}

// suspicion is the first failure of a back end that may be down.
type suspicion struct {
	since  time.Time
	reason string
}

// probing is what this node knows of the probes of one agent's back end.
type probing struct {
	running bool // at most one probe of an agent runs on a node
	next    time.Time
	down    bool // the last probe failed
	asked   bool // the back end is back, and a turn may ask whether it answers: the outage lasts until one did
}

func newProber(b *breaker) *prober {
	return &prober{breaker: b, failed: map[string]suspicion{}, probes: map[string]*probing{}, wake: make(chan struct{}, 1)}
}

// suspect notes that a run failed at the back end of an agent that can be probed.
func (p *prober) suspect(agent string, cause error) {
	entry, known := p.options.Agents.Lookup(agent)
	if _, is := entry.Agent.(Probed); !known || !is {
		return
	}

	p.mu.Lock()
	if _, is := p.failed[agent]; !is {
		p.failed[agent] = suspicion{since: time.Now(), reason: cause.Error()}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// clear notes that a back end answered a turn.
func (p *prober) clear(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failed, agent)
}

// run probes back ends that failed until ctx ends.
func (p *prober) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, agent := range p.due(ctx) {
			running.Go(func() { p.probe(ctx, agent) })
		}

		timer := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due begins the probes that are due, and returns the names of their agents.
func (p *prober) due(ctx context.Context) (names []string) {
	open := p.openOutages(ctx)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.probes {
		if _, suspected := p.failed[agent]; !suspected && !open[agent] && !p.probes[agent].running {
			delete(p.probes, agent)
		}
	}
	for agent := range open {
		if p.probes[agent] == nil { // another process noted the outage: this one has not seen the back end down, and may be the first to see it back
			p.probes[agent] = &probing{down: true}
		}
	}
	for agent := range p.failed {
		open[agent] = true
	}

	for agent := range open {
		one := p.probes[agent]
		if one == nil {
			one = &probing{}
			p.probes[agent] = one
		}
		if !one.running && !now.Before(one.next) {
			one.running = true
			names = append(names, agent)
		}
	}
	return names
}

// openOutages returns the agents of this server whose outages are open and that can be probed.
func (p *prober) openOutages(ctx context.Context) map[string]bool {
	p.breaker.mu.Lock()
	stale := time.Since(p.read) >= watchEvery && !p.reading
	p.reading = p.reading || stale
	p.breaker.mu.Unlock()
	if stale {
		p.readBackEnds(ctx, time.Now())
	}

	p.breaker.mu.Lock()
	defer p.breaker.mu.Unlock()
	open := map[string]bool{}
	for agent, outage := range p.known {
		entry, known := p.options.Agents.Lookup(agent)
		if _, is := entry.Agent.(Probed); known && is && outage.open() {
			open[agent] = true
		}
	}
	return open
}

// pause is how long no probe is due and no other node's outages need to be read.
func (p *prober) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := watchEvery
	for _, one := range p.probes {
		if !one.running {
			wait = min(wait, max(time.Until(one.next), time.Millisecond))
		}
	}
	return wait
}

// probe probes the back end of one agent and notes what it finds.
func (p *prober) probe(ctx context.Context, agent string) {
	entry, release, _ := p.options.Agents.Acquire(agent)
	defer release()
	var err error
	silent := false
	if probed, is := entry.Agent.(Probed); is { // else the agent was removed or replaced
		limited, cancel := context.WithTimeout(ctx, probeLimit)
		err = probed.Probe(limited)
		silent = err != nil && limited.Err() != nil
		cancel()
	}
	if ctx.Err() != nil {
		return
	}

	// A program that works on one message after the other answers no probe meanwhile.
	unclear := silent && !errors.Is(err, upstream.ErrDown) && p.runsNow(agent)
	p.mu.Lock()
	one, first := p.probes[agent], p.failed[agent]
	before, asked := one.down, one.asked
	if !unclear {
		one.down = err != nil
	}
	if err == nil {
		delete(p.failed, agent)
	}
	p.mu.Unlock()

	again := false
	switch {
	case unclear:
	case err != nil:
		p.down(ctx, agent, first, err)
		asked = false
	case before:
		again = !p.back(ctx, agent, entry.Settings.Retry.Rate)
		asked = !again
	case asked:
		p.unasked(ctx, agent, entry.Settings.Retry.Rate)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	one.down, one.asked = one.down || again, asked
	one.running, one.next = false, time.Now().Add(cmp.Or(entry.Settings.Retry.Probe, agents.DefaultProbe))
}

// down opens the breaker of a back end whose probe failed, unless it is open. Where the probe had a connection, messages of senders who have
// not failed are let through: the program may refuse the probe alone.
func (p *prober) down(ctx context.Context, agent string, first suspicion, cause error) {
	outage, known := p.backEnd(ctx, agent)
	if known && outage.open() || first.since.IsZero() {
		return
	}
	outage = BackEnd{
		Agent: agent, Since: first.since, ProbeAt: time.Now().Add(shortestGap), Suspected: !errors.Is(cause, upstream.ErrDown),
		Reason: cause.Error(),
	}
	if first.reason != "" && !errors.Is(cause, upstream.ErrDown) {
		outage.Reason = first.reason + "; " + outage.Reason
	}
	p.open(ctx, outage, cause)
}

// back is called when a probe is answered after others were not. The oldest waiting turn may run at once and asks whether the agent answers
// again. If no turn waits the outage is over. It reports whether that was noted.
func (p *prober) back(ctx context.Context, agent string, rate float64) bool {
	now := time.Now()
	p.readBackEnds(ctx, now)
	outage, known := p.backEnd(ctx, agent)
	if !known || !outage.open() {
		return true
	}

	closed, changed := false, false
	err := p.options.Store.InTx(ctx, func(tx Tx) (err error) {
		closed = false
		if changed, err = tx.MoveProbe(ctx, agent, outage.ProbeAt, now); err != nil || !changed {
			return err
		}
		waits, err := tx.HastenFirst(ctx, agent, backEndsAge) // every node sees by then that the probe has moved
		if err != nil || waits {
			return err
		}
		closed, err = p.close(ctx, tx, outage, now, rate)
		return err
	})
	if err != nil {
		p.options.Logger.WarnContext(ctx, "an agent's back end is back, which cannot be noted now", "agent", agent, "error", err)
		return false
	}
	if closed {
		p.closed(ctx, outage, now)
		return true
	}

	p.breaker.mu.Lock()
	defer p.breaker.mu.Unlock()
	p.of(agent).dialAt = time.Time{}
	if outage, known = p.known[agent]; known && changed {
		outage.ProbeAt = now
		p.known[agent] = outage
	}
	return changed
}

// never is longer than any turn waits.
const never = 100 * 365 * 24 * time.Hour

// unasked ends an outage whose back end is back if no turn is left to ask whether it answers: the one that was to ask was withdrawn.
func (p *prober) unasked(ctx context.Context, agent string, rate float64) {
	outage, known := p.backEnd(ctx, agent)
	if !known || !outage.open() {
		return
	}
	now, closed := time.Now(), false
	err := p.options.Store.InTx(ctx, func(tx Tx) (err error) {
		closed = false
		waits, err := tx.HastenFirst(ctx, agent, never) // no turn is moved
		if err != nil || waits {
			return err
		}
		closed, err = p.close(ctx, tx, outage, now, rate)
		return err
	})
	if err != nil {
		p.options.Logger.WarnContext(ctx, "an agent's back end is back, which cannot be noted now", "agent", agent, "error", err)
	}
	if err == nil && closed {
		p.closed(ctx, outage, now)
	}
}

// close ends an outage in a transaction and brings the turns forward that wait. It reports whether the breaker was open.
func (b *breaker) close(ctx context.Context, tx Tx, outage BackEnd, now time.Time, rate float64) (bool, error) {
	closed, err := tx.CloseBackEnd(ctx, outage.Agent, now)
	if err != nil || !closed {
		return closed, err
	}
	if err := tx.HastenBacklog(ctx, outage.Agent, rate, MaxHastened); err != nil {
		return closed, err
	}
	return closed, tx.Audit(ctx, exchange.AuditRecord{
		At: now, Code: "backend:back", Agent: outage.Agent, Detail: fmt.Sprintf("after %s", now.Sub(outage.Since).Round(time.Second)),
	})
}

// closed notes on this node that an outage has ended.
func (b *breaker) closed(ctx context.Context, outage BackEnd, now time.Time) {
	backEndProbes.WithLabelValues(outage.Agent, "back").Inc()
	b.options.Logger.InfoContext(ctx, "the back end of an agent is back", "agent", outage.Agent, "down_for", now.Sub(outage.Since).Round(time.Second).String())
	outage.ClosedAt = now
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[outage.Agent] = outage
	backEndsOpen.Set(b, 0, outage.Agent)
}

// begin notes that a run asks the back end of an agent; end is called when it does not any more.
func (b *breaker) begin(agent string) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(agent).runs++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.of(agent).runs--
	}
}

// runsNow reports whether a run of this node asks the back end of an agent.
func (b *breaker) runsNow(agent string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(agent).runs > 0
}

// WatchBackEnds probes back ends of agents that failed until ctx ends, and brings their turns forward when they are back. Any number of nodes
// may run it.
func (s *runner) WatchBackEnds(ctx context.Context) error { return s.prober.run(ctx) }

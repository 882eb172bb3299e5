package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
)

var (
	backEndsOpen = telemetry.NewLargest(prometheus.GaugeOpts{
		Name: "inbox_agent_back_end_down", Help: "1 while the breaker of an agent's back end is open, as this node sees it.",
	}, "agent")
	backEndProbes = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_agent_back_end_probes_total", Help: "Runs that asked a back end behind an open breaker whether it is back, by outcome (back, down).",
	}, []string{"agent", "outcome"})
)

const (
	failuresToOpen  = 3                // of different turns, or of different senders, with no success in between
	failureWindow   = 10 * time.Minute // in which they count together
	sameOutage      = 10 * time.Minute // a back end that fails again so soon after it came back has one outage, not two
	backEndsAge     = 2 * time.Second  // how long this node may not see what another one noted
	backEndsWait    = 10 * time.Second // bounds one look into the store
	longestProbeGap = 15 * time.Minute // the longest pause that a back end may ask for
	// seldom is the longest pause of a turn that failed during an outage; a longer patience makes it longer, so that no
	// turn is run more than about a hundred times.
	seldom = 10 * time.Minute
)

// probeGaps are the pauses between two probes; the last one repeats.
var probeGaps = []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// BackEnd is the newest outage of what answers for an agent.
type BackEnd struct {
	Agent    string
	Since    time.Time // its first failure
	Opened   int       // how many probes failed, and the failure that opened the breaker
	ProbeAt  time.Time // when the next run may ask
	ClosedAt time.Time // when the back end was back; zero while the breaker is open
	Reason   string
}

func (b BackEnd) open() bool { return b.ClosedAt.IsZero() }

// BackEndTx is what a transaction does about outages. All nodes share the rows.
type BackEndTx interface {
	// OpenBackEnd opens the breaker, or notes a probe that failed: the later ProbeAt holds. It reports whether an outage
	// began: there was none, or the last one ended before same.
	OpenBackEnd(ctx context.Context, outage BackEnd, same time.Time) (began bool, err error)
	// TakeProbe reports whether the caller is the one who may ask now. No one else may before until.
	TakeProbe(ctx context.Context, agent string, now, until time.Time) (bool, error)
	// CloseBackEnd ends an outage, and reports whether the breaker was open.
	CloseBackEnd(ctx context.Context, agent string, now time.Time) (bool, error)
}

// breaker keeps turns from asking a back end that is down. It has this node's view of the outages, and the places that it assigned to
// turns which wait behind an open breaker. Both can be lost: the rows are read again, and a turn that waits has its place as the due
// time of its job.
type breaker struct {
	*core
	mu      sync.Mutex
	known   map[string]BackEnd
	read    time.Time
	reading bool
	streaks map[string]*streak   // failures since the last success
	places  map[string]time.Time // when the next turn of an agent may go
}

// streak are the failures of one agent's back end in a row. A single message must not open the breaker for all others:
// failures that a message may cause itself count once for each sender, others once for each turn.
type streak struct {
	first time.Time
	by    map[string]bool // at most failuresToOpen
}

func newBreaker(shared *core) *breaker {
	return &breaker{core: shared, known: map[string]BackEnd{}, streaks: map[string]*streak{}, places: map[string]time.Time{}}
}

// backEndFailure is an error of the agent itself, not of what this server does around it.
type backEndFailure struct{ error }

// Unwrap returns the agent's error.
func (f backEndFailure) Unwrap() error { return f.error }

// backEnd returns what is known of an agent's back end. An old view is read again by one caller, while others go on with it.
func (b *breaker) backEnd(ctx context.Context, agent string) (BackEnd, bool) {
	now := time.Now()
	b.mu.Lock()
	stale := now.Sub(b.read) >= backEndsAge && !b.reading
	b.reading = b.reading || stale
	b.mu.Unlock()

	if stale {
		b.readBackEnds(ctx, now)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	found, is := b.known[agent]
	return found, is
}

// readBackEnds keeps the old view when the store does not answer: the runs find out.
func (b *breaker) readBackEnds(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backEndsWait)
	defer cancel()
	list, err := b.options.Store.BackEnds(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading, b.read = false, now
	if err != nil {
		return
	}

	clear(b.known)
	for _, one := range list {
		b.known[one.Agent] = one
		backEndsOpen.Set(b, oneIf(one.open()), one.Agent)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// place returns the time of the next turn of an agent, not before from: so many a second, in the order of the calls.
func (b *breaker) place(agent string, from time.Time, rate float64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.places[agent]
	if at.Before(from) {
		at = from
	}
	b.places[agent] = at.Add(time.Duration(float64(time.Second) / rate))
	return at
}

// entry is what the breaker says to a run that wants to begin.
type entry struct {
	wait    time.Duration // more than zero: not now; no agent is asked, and the run does not count
	overdue bool          // the turn has waited as long as its policy allows
	probe   bool          // the run asks whether the back end is back
}

// enter asks the breaker of the agent's back end. Behind an open one a turn waits for a place of its own, so that neither
// the waiting nor the way back is a rush: places follow each other at the agent's rate, from the next probe on. Once the
// back end is back, turns from before go at their places; younger ones go at once.
func (b *breaker) enter(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord) (entry, error) {
	outage, known := b.backEnd(ctx, agent.Profile.Name)
	if !known {
		return entry{}, nil
	}

	policy, now := agent.Settings.Retry, time.Now()
	waited := job.RunAt.Sub(job.CreatedAt) >= time.Millisecond // its due time is the place that it was given
	if !outage.open() {
		if waited || !job.CreatedAt.Before(outage.ClosedAt) {
			return entry{}, nil
		}
		return entry{wait: b.place(agent.Profile.Name, now, policy.Rate).Sub(now)}, nil
	}

	if !now.Before(outage.ProbeAt) {
		taken, err := b.takeProbe(ctx, agent, now)
		if err != nil || taken {
			return entry{probe: taken}, err
		}
	}

	end := b.patienceEnd(job, turn, agent, outage)
	if !now.Before(end) {
		return entry{overdue: true}, nil
	}

	at := b.place(agent.Profile.Name, later(outage.ProbeAt, now), policy.Rate)
	return entry{wait: max(sooner(at, end).Sub(now), time.Millisecond)}, nil
}

// takeProbe lets this run ask, if no other one does. Should it be cut off, or not learn that it may ask, another asks when its time limit
// is over.
func (b *breaker) takeProbe(ctx context.Context, agent agents.Entry, now time.Time) (taken bool, err error) {
	until := now.Add(agent.Settings.TimeLimit + probeGaps[0])
	err = b.options.Store.InTx(ctx, func(tx Tx) (err error) {
		taken, err = tx.TakeProbe(ctx, agent.Profile.Name, now, until)
		return err
	})

	b.mu.Lock()
	defer b.mu.Unlock()

	if outage, known := b.known[agent.Profile.Name]; err == nil && known {
		if taken {
			outage.ProbeAt = until
		} else { // another node asks
			outage.ProbeAt = now.Add(probeGaps[0])
		}
		b.known[agent.Profile.Name] = outage
	}

	return taken, err
}

// patienceEnd is until when a turn is kept during an outage: so long as its schedule lasts, from when the turn was taken up
// or the outage began, whichever is later. A turn that stood behind others is not given up at its first failure.
func (b *breaker) patienceEnd(job queue.Job, turn exchange.TurnRecord, agent agents.Entry, outage BackEnd) time.Time {
	return later(job.CreatedAt, outage.Since).Add(total(agent.Settings.Retry.Of(b.awaited(turn))))
}

// awaited reports whether someone waits on an open connection for the answer to a turn.
func (b *breaker) awaited(turn exchange.TurnRecord) bool {
	if turn.Channel == exchange.ChannelLocal { // another agent of this server waits
		return true
	}
	channel, knows := b.options.Channels.Channel(turn.Channel).(exchange.Awaited)
	return knows && channel.Awaits(turn.Route)
}

// failed counts a failure of an agent's back end, and opens the breaker after several. The result reports whether it
// is open now.
func (b *breaker) failed(ctx context.Context, agent string, turn exchange.TurnRecord, cause error, probe bool) (BackEnd, bool) {
	outage, known := b.backEnd(ctx, agent)
	now := time.Now()
	switch {
	case probe:
		backEndProbes.WithLabelValues(agent, "down").Inc()
	case known && outage.open(): // a run that began before
		return outage, true
	case !b.fails(agent, turn, cause, now):
		return outage, false
	}

	if !known || !outage.open() {
		outage = BackEnd{Agent: agent, Since: now}
	}

	asked := min(fault.Of(cause).RetryAfter, longestProbeGap)
	outage.ProbeAt = now.Add(max(probeGaps[min(outage.Opened, len(probeGaps)-1)], asked))
	outage.Reason = cause.Error()
	began := false
	err := b.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if began, err = tx.OpenBackEnd(ctx, outage, now.Add(-sameOutage)); err != nil || !began {
			return err
		}
		return b.reportOutage(ctx, tx, outage)
	})
	if err != nil {
		b.options.Logger.WarnContext(ctx, "an agent's back end fails, which cannot be noted now", "agent", agent, "error", err)
		return outage, false
	}

	if began {
		b.options.Logger.ErrorContext(ctx, "the back end of an agent is down: messages wait until it is back", "agent", agent, "error", cause)
	}

	outage.Opened++
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[agent] = outage
	delete(b.streaks, agent)
	backEndsOpen.Set(b, 1, agent)
	return outage, true
}

// fails counts a failure and reports whether it is time to open the breaker.
func (b *breaker) fails(agent string, turn exchange.TurnRecord, cause error, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.streaks[agent]
	if row == nil || now.Sub(row.first) > failureWindow {
		row = &streak{first: now, by: map[string]bool{}}
		b.streaks[agent] = row
	}

	key := "sender " + turn.BroughtBy()
	if errors.Is(cause, upstream.ErrDown) {
		key = "turn " + turn.ID
	}

	row.by[key] = true
	return len(row.by) >= failuresToOpen
}

// answered notes that an agent's back end answered: what it said does not matter.
func (b *breaker) answered(ctx context.Context, agent string) {
	b.mu.Lock()
	delete(b.streaks, agent)
	outage, known := b.known[agent]
	b.mu.Unlock()
	if !known || !outage.open() {
		return
	}

	now, closed := time.Now(), false
	err := b.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if closed, err = tx.CloseBackEnd(ctx, agent, now); err != nil || !closed {
			return err
		}
		return tx.Audit(ctx, exchange.AuditRecord{
			At: now, Code: "backend:back", Agent: agent, Detail: fmt.Sprintf("after %s", now.Sub(outage.Since).Round(time.Second)),
		})
	})
	if err != nil {
		b.options.Logger.WarnContext(ctx, "an agent's back end is back, which cannot be noted now", "agent", agent, "error", err)
		return
	}

	if closed {
		backEndProbes.WithLabelValues(agent, "back").Inc()
		b.options.Logger.InfoContext(ctx, "the back end of an agent is back", "agent", agent, "down_for", now.Sub(outage.Since).Round(time.Second).String())
	}

	outage.ClosedAt = now
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[agent] = outage
	backEndsOpen.Set(b, 0, agent)
}

// reportOutage puts an outage on record in the transaction in which it begins.
func (b *breaker) reportOutage(ctx context.Context, tx Tx, outage BackEnd) error {
	return tx.Audit(ctx, exchange.AuditRecord{At: outage.Since, Code: "backend:down", Agent: outage.Agent, Detail: outage.Reason})
}

// repeatAfter decides when a run that failed for a reason that passes is repeated: ok is false when the schedule is used
// up. During an outage the run does not count (snooze), and time alone ends the turn's patience.
func (b *breaker) repeatAfter(job queue.Job, agent agents.Entry, turn exchange.TurnRecord, cause error, outage BackEnd, open bool) (wait time.Duration, snooze, ok bool) {
	policy, now := agent.Settings.Retry, time.Now()
	schedule := policy.Of(b.awaited(turn))
	if len(schedule) == 0 {
		return 0, false, false
	}

	patience := total(schedule)
	asked := min(fault.Of(cause).RetryAfter, patience)
	if !open {
		if job.Attempt > len(schedule) {
			return 0, false, false
		}
		return max(jitter(schedule[job.Attempt-1]), asked), false, true
	}

	end := b.patienceEnd(job, turn, agent, outage)
	if !now.Before(end) {
		return 0, false, false
	}

	own := min(schedule[min(max(turn.Attempt, 1), len(schedule))-1], max(seldom, patience/100))
	at := b.place(agent.Profile.Name, later(outage.ProbeAt, now.Add(max(own, min(asked, longestProbeGap)))), policy.Rate)
	return max(sooner(at, end).Sub(now), time.Millisecond), true, true
}

// jitter adds up to a tenth, so that runs that failed together do not come back together.
func jitter(wait time.Duration) time.Duration { return wait + rand.N(wait/10+1) }

func total(schedule []time.Duration) (sum time.Duration) {
	for _, wait := range schedule {
		sum += wait
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if cmp.Compare(a.UnixNano(), b.UnixNano()) < 0 {
		return a
	}
	return b
}

package pipeline

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/engine/blame"
	"inbox/exchange"
	"inbox/identity"
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
	failuresToOpen = 3                // with no answer in between: runs where no message can be the cause, else failures of different causes
	failureWindow  = 10 * time.Minute // in which they count together
	sameOutage     = 10 * time.Minute // a back end that fails again so soon after it came back has one outage, not two
	backEndsAge    = 2 * time.Second  // how long this node may not see what another one noted
	backEndsWait   = 10 * time.Second // bounds one look into the store

	shortestGap  = 5 * time.Second  // between two probes, while an outage is very young
	youngGap     = 15 * time.Second // likewise while it is young, and the shortest time for which a probe is alone
	longestGap   = time.Minute      // likewise later, whatever pause was asked for: one message can make a back end ask
	veryYoung    = time.Minute
	young        = 10 * time.Minute
	longestAsked = 15 * time.Minute // the longest pause of a turn that a back end may ask for
	// seldom is the longest pause of a turn that failed during an outage; a longer patience makes it longer, so that no
	// turn is run much more than a hundred times.
	seldom = 10 * time.Minute

	dialEvery  = 5 * time.Second // between two attempts to connect to a back end that takes no connection
	dialLimit  = 5 * time.Second
	near       = 5 * time.Second // a turn whose place is so close is about to come for the probe itself
	trialEvery = 5 * time.Second // between two trials of one cause, and to the end of one that lasts longer
	trialStep  = time.Second     // between two looks for one

	orderKept = 10 * time.Minute       // after an outage, while no message overtakes an earlier one of its sender
	soon      = time.Minute            // a turn that goes so soon keeps younger ones of its sender waiting, however often it was tried
	lookAgain = 250 * time.Millisecond // for an earlier turn that is about to go, or under way

	runsToYield    = 10                 // that failed, after which a turn keeps no younger one of its sender waiting
	failuresOfTurn = 3                  // of one turn, between which others were answered: it is at fault
	faultAge       = 2 * 24 * time.Hour // how long the failures of a turn are remembered
)

// probeGap is the pause between two probes of an outage that is so old.
func probeGap(age time.Duration) time.Duration {
	switch {
	case age < veryYoung:
		return shortestGap
	case age < young:
		return youngGap
	}
	return longestGap
}

// BackEnd is the newest outage of what answers for an agent.
type BackEnd struct {
	Agent    string
	Since    time.Time // its first failure
	Opened   int       // how many probes failed, and the failure that opened the breaker
	ProbeAt  time.Time // when the next run may ask
	ClosedAt time.Time // when the back end was back; zero while the breaker is open
	Reason   string
	// Suspected: every failure may have been caused by its message, so that those who have not failed are let through.
	Suspected bool
	// Held is the ProbeAt with which the caller took the probe whose failure it notes; zero = it took none. It is not stored.
	Held time.Time
}

func (b BackEnd) open() bool { return b.ClosedAt.IsZero() }

// BackEndTx is what a transaction does about outages. All nodes share the rows.
type BackEndTx interface {
	// OpenBackEnd opens the breaker, or notes a failure while it is open: the later ProbeAt holds, except that of the caller's own
	// probe, which is over. It reports whether an outage began: there was none, or the last one ended before same.
	OpenBackEnd(ctx context.Context, outage BackEnd, same time.Time) (began bool, err error)
	// TakeProbe reports whether the caller is the one who may ask now. No one else may before until.
	TakeProbe(ctx context.Context, agent string, now, until time.Time) (bool, error)
	// HastenEarlier lets the oldest of the turns that Reader.Earlier lists go now.
	HastenEarlier(ctx context.Context, turn exchange.TurnRecord, within time.Duration) error
	// CloseBackEnd ends an outage, and reports whether the breaker was open.
	CloseBackEnd(ctx context.Context, agent string, now time.Time) (bool, error)
	// MoveProbe lets the next run ask at once behind an open breaker whose ProbeAt is still the one that was read, and reports whether it is.
	MoveProbe(ctx context.Context, agent string, read, now time.Time) (bool, error)
	// HastenFirst lets the oldest waiting turn of an agent run after a wait, if it is to run later. It reports whether the agent has turns
	// that wait or run.
	HastenFirst(ctx context.Context, agent string, wait time.Duration) (bool, error)
	// HastenBacklog brings waiting turns of an agent forward, at most so many, the oldest first and so many a second.
	HastenBacklog(ctx context.Context, agent string, rate float64, most int) error
}

// breaker keeps turns from asking a back end that is down. It has this node's view of the outages, and what it has seen of the turns
// of each agent. Both can be lost: the rows are read again, and a turn that waits has its place as the due time of its job.
type breaker struct {
	*core
	mu      sync.Mutex
	known   map[string]BackEnd
	read    time.Time
	reading bool
	seen    map[string]*behaviour // by agent
}

// behaviour is what this node has seen of one agent's back end.
type behaviour struct {
	first       time.Time   // of the failures below
	unconnected int         // runs without a connection, with no answer since
	causes      blame.Tally // of the other failures with no answer since

	place   time.Time         // when the next turn may go
	waiting map[string]waiter // turns that wait behind the open breaker, by id
	trying  map[string]*trial // the last run beside the open breaker of each cause, by its wide name
	dialAt  time.Time         // no connection is tried before
	runs    int               // that ask it now
	dialing bool

	failed   map[string]failures // by turn
	answered time.Time           // when a turn was answered last
}

// waiter is a turn that waits behind an open breaker.
type waiter struct {
	cause blame.Cause
	due   time.Time
}

// trial is a run that asks beside an open breaker.
type trial struct {
	cause string
	until time.Time // while it lasts, no other one of the cause begins before
	next  time.Time // when the next turn of the cause looks again
}

// failures are those of one turn.
type failures struct {
	runs    int       // that failed
	counted int       // of these, those before which others were answered since the last one
	own     int       // of the counted, those after which the back end did not ask for patience
	last    time.Time // that was counted
}

// yields reports whether younger turns of the same sender need not wait.
func (f failures) yields() bool { return f.counted > 1 || f.runs >= runsToYield }

func (f failures) exceeds(other failures) bool {
	return f.counted > other.counted || f.runs > other.runs
}

// Earlier is a turn that an older message of the same sender began. It goes in Wait by its job; not more than zero: it is about to, or under way.
type Earlier struct {
	TurnID string
	Wait   time.Duration
}

// Reachable is an agent whose back end can be looked for without a message: Reach reports whether it takes connections.
type Reachable interface {
	Reach(ctx context.Context) error
}

// of returns what is seen of an agent. The caller holds the lock.
func (b *breaker) of(agent string) *behaviour {
	one := b.seen[agent]
	if one == nil {
		one = &behaviour{waiting: map[string]waiter{}, trying: map[string]*trial{}, failed: map[string]failures{}}
		b.seen[agent] = one
	}
	return one
}

// causeOf is who may have caused a failure of a turn's run. One caller may bring the messages of many people, each of whom has to do with
// their own alone.
func causeOf(turn exchange.TurnRecord) blame.Cause {
	cause := blame.Cause{Sender: turn.BroughtBy() + " " + turn.Principal + " " + turn.Network}
	if len(turn.Message.Sender.Identities) == 0 {
		cause.Network, cause.Domain = turn.Network, statedDomain(turn)
	} else {
		cause.Account = cmp.Or(identity.RegistrableDomain(provenDomain(turn.Message.Sender)), turn.BroughtBy())
	}
	return cause
}

func newBreaker(shared *core) *breaker {
	return &breaker{core: shared, known: map[string]BackEnd{}, seen: map[string]*behaviour{}}
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
	one := b.of(agent)
	at := later(one.place, from)
	one.place = at.Add(time.Duration(float64(time.Second) / rate))
	return at
}

// entry is what the breaker says to a run that wants to begin.
type entry struct {
	wait    time.Duration // more than zero: not now; no agent is asked, and the run does not count
	overdue bool          // the turn has waited as long as its policy allows
	probe   time.Time     // not zero: the run asks whether the back end is back, and no one else does until then
	trial   *trial        // not nil: the run asks beside an open breaker, as its sender has not failed
}

// enter asks the breaker of the agent's back end. Behind an open one a turn waits for a place of its own, so that neither
// the waiting nor the way back is a rush: places follow each other at the agent's rate, from the next probe on. Once the
// back end is back, turns from before go at their places, those of one sender in their order; younger ones go at once.
func (b *breaker) enter(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord) (entry, error) {
	name, now := agent.Profile.Name, time.Now()
	outage, known := b.backEnd(ctx, name)
	switch {
	case !known:
		return entry{}, nil
	case !outage.open():
		return b.enterAfter(ctx, job, agent, turn, outage)
	}

	if asks, err := b.ask(ctx, agent, turn, outage); err != nil || asks != (entry{}) {
		return asks, err
	}

	end := b.patienceEnd(job, turn, agent, outage)
	if !now.Before(end) { // who waits on a connection hears of an attempt, not of those of others
		return entry{overdue: turn.Attempt > 0 || !b.awaited(turn)}, nil
	}

	at := b.place(name, b.probeFrom(name, outage, now), agent.Settings.Retry.Rate)
	if next := b.nextTrial(turn, outage, now); !next.IsZero() {
		at = next
	}
	at = sooner(at, end)
	b.wait(name, turn, at)
	return entry{wait: max(at.Sub(now), time.Millisecond)}, nil
}

// enterAfter is enter once the breaker is closed.
func (b *breaker) enterAfter(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, outage BackEnd) (entry, error) {
	name, now := agent.Profile.Name, time.Now()
	if now.Before(b.backlogEnd(name, outage)) {
		wait, precedes, err := b.earlier(ctx, turn)
		if err != nil || precedes {
			return entry{wait: wait}, err
		}
	}

	waited := job.RunAt.Sub(job.CreatedAt) >= time.Millisecond // its due time is the place that it was given
	if waited || !job.CreatedAt.Before(outage.ClosedAt) {
		return entry{}, nil
	}
	return entry{wait: b.place(name, now, agent.Settings.Retry.Rate).Sub(now)}, nil
}

// backlogEnd is until when turns from an outage may wait for their places.
func (b *breaker) backlogEnd(agent string, outage BackEnd) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return later(outage.ClosedAt.Add(orderKept), b.of(agent).place)
}

// ask lets a turn ask behind the open breaker, as the probe or beside it. The entry is empty if it may not now.
func (b *breaker) ask(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, outage BackEnd) (entry, error) {
	name, now := agent.Profile.Name, time.Now()
	probes := !now.Before(outage.ProbeAt) && b.isFirst(name, turn, now) && b.reaches(ctx, agent)
	if !probes && !outage.Suspected {
		return entry{}, nil
	}

	_, precedes, err := b.earlier(ctx, turn)
	switch {
	case err != nil:
		return entry{}, err
	case precedes && probes: // of many messages of one sender the oldest may have a late place
		return entry{}, b.options.Store.InTx(ctx, func(tx Tx) error { return tx.HastenEarlier(ctx, turn, soon) })
	case precedes:
		return entry{}, nil
	}

	if probes {
		until, err := b.takeProbe(ctx, agent, outage)
		if err != nil || !until.IsZero() {
			return entry{probe: until}, err
		}
	}
	if outage.Suspected {
		return entry{trial: b.try(name, turn, time.Now())}, nil
	}
	return entry{}, nil
}

// earlier reports whether an older message of the same sender goes first, and how long that takes at least. One that failed again after
// others were answered holds no other one up, nor one that failed very often.
func (b *breaker) earlier(ctx context.Context, turn exchange.TurnRecord) (wait time.Duration, precedes bool, err error) {
	list, err := b.options.Store.Earlier(ctx, turn, soon)
	if err != nil {
		return 0, false, err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	failed := b.of(turn.Agent).failed
	for _, one := range list {
		if older := failed[one.TurnID]; !older.yields() || !older.exceeds(failed[turn.ID]) {
			wait, precedes = max(wait, one.Wait, 0), true
		}
	}
	return wait + lookAgain, precedes, nil
}

// probeFrom is when a turn that waits may learn that the back end is back.
func (b *breaker) probeFrom(agent string, outage BackEnd, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return later(later(outage.ProbeAt, b.of(agent).dialAt), now)
}

// statedDomain is the registrable domain that a sender without proof calls their own; the network of one who states none.
func statedDomain(turn exchange.TurnRecord) string {
	address := turn.Message.Sender.Address.String()
	at := strings.LastIndexByte(address, '@')
	if at <= 0 {
		return turn.Network
	}
	return identity.RegistrableDomain(address[at+1:])
}

// wait notes that a turn waits behind the open breaker until a time.
func (b *breaker) wait(agent string, turn exchange.TurnRecord, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(agent)
	if len(one.waiting) < blame.MaxKept {
		one.waiting[turn.ID] = waiter{causeOf(turn), until}
	}
}

// isFirst reports whether a turn is the one to be the probe: none is about to come whose cause has less to do with the failures. Who sent a
// message that failed as the probe is behind all others then.
func (b *breaker) isFirst(agent string, turn exchange.TurnRecord, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(agent)
	mine := one.causes.ShareOf(causeOf(turn))
	for id, other := range one.waiting {
		switch {
		case id == turn.ID, other.due.Sub(now) >= near:
		case now.Sub(other.due) > near: // it did not come: it was cancelled, or another node has it
			delete(one.waiting, id)
		case one.causes.ShareOf(other.cause).Compare(mine) < 0:
			return false
		}
	}
	return true
}

// try lets a turn ask beside an open breaker if its sender has caused none of the failures: one at a time of each cause, but none for long.
func (b *breaker) try(agent string, turn exchange.TurnRecord, now time.Time) *trial {
	cause := causeOf(turn)
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(agent)
	wide := cause.Wide()
	if last := one.trying[wide]; one.causes.Includes(cause.Sender) || last != nil && now.Before(last.until) {
		return nil
	}
	begun := &trial{cause: wide, until: now.Add(trialEvery), next: now}
	one.trying[wide] = begun
	return begun
}

// nextTrial is when a turn looks again that may not be tried because of another one of its cause; zero = its sender has failed, too.
func (b *breaker) nextTrial(turn exchange.TurnRecord, outage BackEnd, now time.Time) time.Time {
	if !outage.Suspected {
		return time.Time{}
	}
	cause := causeOf(turn)
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(turn.Agent)
	last := one.trying[cause.Wide()]
	if last == nil || one.causes.Includes(cause.Sender) {
		return time.Time{}
	}
	last.next = later(last.next, now).Add(trialStep)
	return last.next
}

// tried ends what try began.
func (b *breaker) tried(agent string, ended *trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.of(agent); one.trying[ended.cause] == ended {
		delete(one.trying, ended.cause)
	}
}

// reaches reports whether the agent's back end takes connections, as far as it can be asked without a message. One turn asks at a time.
func (b *breaker) reaches(ctx context.Context, agent agents.Entry) bool {
	reachable, is := agent.Agent.(Reachable)
	if !is {
		return true
	}

	b.mu.Lock()
	one := b.of(agent.Profile.Name)
	if one.dialing || time.Now().Before(one.dialAt) {
		b.mu.Unlock()
		return false
	}
	one.dialing = true
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	err := reachable.Reach(ctx)

	b.mu.Lock()
	defer b.mu.Unlock()
	one.dialing = false
	if err != nil {
		one.dialAt = time.Now().Add(dialEvery)
	}
	return err == nil
}

// takeProbe lets this run ask, if no other one does, and returns until when no one else may. Should the run be cut off, not learn that it
// may ask, or last long, another asks then.
func (b *breaker) takeProbe(ctx context.Context, agent agents.Entry, outage BackEnd) (until time.Time, err error) {
	now, taken := time.Now(), false
	alone := min(agent.Settings.TimeLimit+shortestGap, max(youngGap, probeGap(now.Sub(outage.Since))))
	until = now.Add(alone).Truncate(time.Microsecond)
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
			outage.ProbeAt = now.Add(shortestGap)
		}
		b.known[agent.Profile.Name] = outage
	}
	if err != nil || !taken {
		return time.Time{}, err
	}
	return until, nil
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
// is open now. A run that was the probe gives the time until which it held it.
func (b *breaker) failed(ctx context.Context, agent string, turn exchange.TurnRecord, cause error, probe time.Time) (BackEnd, bool) {
	outage, known := b.backEnd(ctx, agent)
	now, down := time.Now(), errors.Is(cause, upstream.ErrDown)
	reached := b.count(agent, turn, cause, now)
	isOpen := known && outage.open()
	switch {
	case !probe.IsZero():
		backEndProbes.WithLabelValues(agent, "down").Inc()
	case isOpen && (!down || !outage.Suspected): // a run that began before, or beside the breaker
		return outage, true
	case !isOpen && !reached:
		return outage, false
	}

	if !isOpen {
		outage = BackEnd{Agent: agent, Since: now, Suspected: true}
	}

	outage.ProbeAt = now.Add(max(probeGap(now.Sub(outage.Since)), min(fault.Of(cause).RetryAfter, longestGap)))
	outage.Reason, outage.Suspected, outage.Held = cause.Error(), outage.Suspected && !down, probe
	if !b.open(ctx, outage, cause) {
		return outage, isOpen
	}
	outage.Opened++
	return outage, true
}

// open opens the breaker of a back end, or notes a failure while it is open. It reports whether that could be noted.
func (b *breaker) open(ctx context.Context, outage BackEnd, cause error) bool {
	began := false
	err := b.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if began, err = tx.OpenBackEnd(ctx, outage, time.Now().Add(-sameOutage)); err != nil || !began {
			return err
		}
		return b.reportOutage(ctx, tx, outage)
	})
	if err != nil {
		b.options.Logger.WarnContext(ctx, "an agent's back end fails, which cannot be noted now", "agent", outage.Agent, "error", err)
		return false
	}

	if began {
		b.options.Logger.ErrorContext(ctx, "the back end of an agent is down: messages wait until it is back", "agent", outage.Agent, "error", cause)
	}

	outage.Opened++
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[outage.Agent] = outage
	backEndsOpen.Set(b, 1, outage.Agent)
	return true
}

// count notes a failure and reports whether it is time to open the breaker: several runs had no connection, or failures with no answer in
// between have several causes.
func (b *breaker) count(agent string, turn exchange.TurnRecord, cause error, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(agent)
	outage, known := b.known[agent]
	if open := known && outage.open(); !open && now.Sub(one.first) > failureWindow {
		one.first, one.unconnected, one.causes = now, 0, blame.Tally{}
	}

	if errors.Is(cause, upstream.ErrDown) {
		one.unconnected++
	} else {
		one.causes.Add(causeOf(turn))
		one.fail(turn.ID, cause, now)
	}

	return one.unconnected >= failuresToOpen || one.causes.Causes() >= failuresToOpen
}

// fail counts a failure of a turn that its message may have caused.
func (b *behaviour) fail(turnID string, cause error, now time.Time) {
	mine, is := b.failed[turnID]
	if !is && len(b.failed) >= blame.MaxKept {
		maps.DeleteFunc(b.failed, func(_ string, other failures) bool { return now.Sub(other.last) > faultAge })
		if len(b.failed) >= blame.MaxKept {
			return
		}
	}
	if mine.runs++; !is || b.answered.After(mine.last) {
		mine.counted, mine.last = mine.counted+1, now
		if !asksForPatience(cause) {
			mine.own++
		}
	}
	b.failed[turnID] = mine
}

// asksForPatience reports whether a back end is busy, perhaps with others.
func asksForPatience(cause error) bool {
	return errors.Is(cause, upstream.ErrBusy) || fault.Of(cause).RetryAfter > 0
}

// isAtFault reports whether the failures of a turn are its own: it failed several times, and the agent answered others between them.
func (b *breaker) isAtFault(agent string, turn exchange.TurnRecord, cause error) bool {
	if errors.Is(cause, upstream.ErrDown) || asksForPatience(cause) {
		return false
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(agent).failed[turn.ID].own >= failuresOfTurn
}

// forget is told that a turn has ended: if it is taken up again, its failures count from the first.
func (b *breaker) forget(agent, turnID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.seen[agent]; one != nil {
		delete(one.failed, turnID)
	}
}

// answered notes that an agent's back end answered a turn: what it said does not matter. Rate bounds how fast waiting turns follow.
func (b *breaker) answered(ctx context.Context, agent, turnID string, rate float64) {
	b.mu.Lock()
	one := b.of(agent)
	one.unconnected, one.causes, one.answered, one.dialAt = 0, blame.Tally{}, time.Now(), time.Time{}
	delete(one.failed, turnID)
	clear(one.waiting)
	outage, known := b.known[agent]
	b.mu.Unlock()
	if !known || !outage.open() {
		return
	}

	now, closed := time.Now(), false
	err := b.options.Store.InTx(ctx, func(tx Tx) (err error) {
		closed, err = b.close(ctx, tx, outage, now, rate)
		return err
	})
	if err != nil {
		b.options.Logger.WarnContext(ctx, "an agent's back end is back, which cannot be noted now", "agent", agent, "error", err)
		return
	}

	if closed {
		b.closed(ctx, outage, now)
		return
	}
	outage.ClosedAt = now // another node noted it
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
	down := errors.Is(cause, upstream.ErrDown)
	if !open {
		if job.Attempt > len(schedule) {
			return 0, false, false
		}
		if down { // a few more of these open the breaker, which waits for a connection
			return min(jitter(schedule[job.Attempt-1]), dialEvery), true, true
		}
		return max(jitter(schedule[job.Attempt-1]), asked), false, true
	}

	end := b.patienceEnd(job, turn, agent, outage)
	if !now.Before(end) {
		return 0, false, false
	}

	own := min(schedule[min(max(turn.Attempt, 1), len(schedule))-1], max(seldom, patience/100))
	if now.Sub(outage.Since) < young {
		own = min(own, youngGap)
	}
	if _, is := agent.Agent.(Reachable); is && down {
		own = 0 // a connection is tried without a run
	}
	from := later(outage.ProbeAt, now.Add(max(own, min(asked, longestAsked))))
	at := sooner(b.place(agent.Profile.Name, from, policy.Rate), end)
	b.wait(agent.Profile.Name, turn, at)
	return max(at.Sub(now), time.Millisecond), true, true
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

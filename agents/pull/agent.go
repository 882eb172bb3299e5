package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	lookEvery = time.Second      // how often who waits looks at what other nodes did
	keepFor   = 15 * time.Minute // documents, beyond the time of the run: for repeats and for who takes the turn over
	longest   = 24 * time.Hour   // a run whose context has no end
)

// Agent offers its turns to the programs that ask for them. It is safe for concurrent use.
type Agent struct {
	service  *Service
	name     string // lower case
	settings Settings

	mu      sync.Mutex
	pollers int
	looked  time.Time // when a poller last looked for offers of other nodes

	presence presence
}

// Handle offers the turn and yields what the program that takes it sends. Errors are faults: Permanent when the program
// gave the turn up for good; without it no program took the turn, its lease ran out, or the program asked for another try.
// When ctx is cancelled or too late the program hears it with its next sign of life, and the error is that of ctx. When
// ctx ends with a cause of its own (the queue's lease is lost, the server stops) the program goes on, and the next
// attempt takes up what it brings; so it does when the process was killed.
func (a *Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		stopped := false
		err := a.answer(ctx, turn, func(delta normalized.Delta) bool {
			stopped = stopped || !yield(delta, nil)
			return !stopped
		})
		observe(err, stopped)
		if err != nil && !stopped {
			yield(normalized.Delta{}, err)
		}
	}
}

// emit hands one delta to the engine; false = it wants no more.
type emit func(normalized.Delta) bool

func (a *Agent) answer(ctx context.Context, turn agents.Turn, emit emit) error {
	mark, err := fingerprint(turn.Message)
	if err != nil {
		return err
	}

	owner := uuid.NewString()
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("offer turn: %w", context.Cause(ctx))
		}

		w, err := a.begin(ctx, turn, pointer{Owner: owner, Fingerprint: mark})
		if err != nil {
			return interrupted(ctx, err)
		}

		w.emit = emit
		again, err := w.follow(ctx)
		if !again {
			return err
		}
	}
}

// fingerprint names what is asked. A turn that is taken up again with something new is asked anew.
func fingerprint(question normalized.Message) (string, error) {
	question.History = nil // it is read anew for every attempt
	encoded, err := json.Marshal(question)
	if err != nil {
		return "", fmt.Errorf("encode the question: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16]), nil
}

// interrupted classes a mailbox that does not work.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("offer turn: %w", context.Cause(ctx))
	}
	return fault.RetryIn(0, upstream.Unreachable, fmt.Errorf("offer turn: %w", err))
}

// begin takes up what an earlier attempt left, or offers the turn.
func (a *Agent) begin(ctx context.Context, turn agents.Turn, mine pointer) (*watch, error) {
	value, found, err := a.service.options.Mailbox.Get(ctx, turnsSpace+a.name, turn.ID)
	if err != nil {
		return nil, err
	}

	if found {
		var old pointer
		if err := decode(value, &old); err != nil {
			return nil, err
		}

		usable, err := a.usable(ctx, old, mine)
		if err != nil {
			return nil, err
		}
		if usable {
			mine.Run, mine.Until = old.Run, old.Until
			return a.watch(turn, mine), a.service.rows.put(ctx, turnsSpace+a.name, turn.ID, mine, mine.Until)
		}
	}

	return a.offer(ctx, turn, mine)
}

// usable reports whether the run of an earlier attempt can still bring the answer. One that cannot is closed.
func (a *Agent) usable(ctx context.Context, old, mine pointer) (bool, error) {
	rows := a.service.rows
	var holder claim
	closed, err := rows.first(ctx, runSpace+old.Run, claimKey, claim{Closed: true}, &holder, old.Until)
	if err != nil || closed || holder.Closed {
		return false, err // it waited for a program
	}

	deadline, limited := ctx.Deadline()
	now, err := rows.status(ctx, old.Run)
	if err != nil {
		return false, err
	}
	if old.Fingerprint == mine.Fingerprint && (!limited || old.Until.After(deadline)) {
		return now.end == nil || now.end.Outcome == answered, nil
	}

	_, err = rows.end(ctx, old.Run, end{Outcome: cancelled}, old.Until)
	a.service.notifier.notifyAll(runTopic(old.Run))
	return false, err
}

// offer makes a new run that a program can take.
func (a *Agent) offer(ctx context.Context, turn agents.Turn, mine pointer) (*watch, error) {
	id, err := uuid.NewV7() // in order of time: the oldest offer is taken first
	if err != nil {
		return nil, fmt.Errorf("make a lease id: %w", err)
	}

	mine.Run = id.String()
	deadline, limited := ctx.Deadline()
	if !limited {
		deadline = time.Now().Add(longest)
	}

	mine.Until = deadline.Add(keepFor)
	document, err := requestOf(turn, leaseOf(mine.Run, a.settings.Lease))
	if err != nil {
		return nil, err
	}

	rows := a.service.rows
	if err := rows.mailbox.Put(ctx, requestsSpace, mine.Run, document, mine.Until); err != nil {
		return nil, err
	}
	if err := rows.put(ctx, turnsSpace+a.name, turn.ID, mine, mine.Until); err != nil {
		return nil, err
	}

	waiting := offer{Turn: turn.ID, Attempt: turn.Attempt, Until: mine.Until}
	if err := rows.put(ctx, offersSpace+a.name, mine.Run, waiting, time.Now().Add(a.settings.MaxWait+a.settings.Lease)); err != nil {
		return nil, err
	}

	w := a.watch(turn, mine)
	a.service.notifier.notify(offersTopic(a.name), 1)
	return w, nil
}

func (a *Agent) watch(turn agents.Turn, mine pointer) *watch {
	return &watch{
		agent: a, rows: a.service.rows, turn: turn, mine: mine, fold: normalized.NewFold(a.service.options.Limits),
		deadline: time.Now().Add(a.settings.MaxWait), idle: func() {},
	}
}

// offersPage is how many offers one look reads.
const offersPage = 16

// enter counts a request that waits for turns; leave counts it out.
func (a *Agent) enter() (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.pollers >= MaxPollers {
		return nil, &fault.Fault{
			Kind: fault.RateLimited, Public: "too many programs wait for turns of this agent at the same time", RetryAfter: lookEvery,
		}
	}

	a.pollers++
	pollers.Inc()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pollers--
		pollers.Dec()
	}, nil
}

// due reports whether it is time to look for what other nodes offer. One poller looks for all of this node.
func (a *Agent) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.looked) < lookEvery {
		return false
	}
	a.looked = time.Now()
	return true
}

// turn is a run that was taken.
type turn struct {
	run      string
	document []byte
}

// take returns the oldest turn that no program has, and wakes others when more are left; nil = there is none.
func (a *Agent) take(ctx context.Context) (*turn, error) {
	s, after := a.service, ""
	for {
		keys, values, err := s.options.Mailbox.List(ctx, offersSpace+a.name, after, offersPage)
		if err != nil {
			return nil, unavailable("taking a turn", err)
		}

		for i, run := range keys {
			after = run
			taken, err := a.claim(ctx, run, values[i])
			if err != nil {
				return nil, unavailable("taking a turn", err)
			}
			if taken != nil {
				s.notifier.notify(offersTopic(a.name), len(keys)-i-1)
				return taken, nil
			}
		}

		if len(keys) < offersPage {
			return nil, nil
		}
	}
}

// claim takes one offer unless another caller was faster.
func (a *Agent) claim(ctx context.Context, run string, value []byte) (*turn, error) {
	var offered offer
	if err := decode(value, &offered); err != nil {
		return nil, err
	}

	s := a.service
	mine := claim{Agent: a.name, Turn: offered.Turn, Attempt: offered.Attempt, Until: offered.Until}
	won, err := s.rows.first(ctx, runSpace+run, claimKey, mine, nil, offered.Until)
	if err != nil || !won {
		return nil, err
	}

	ctx = context.WithoutCancel(ctx) // the turn is ours: it is given out or given back
	s.notifier.notifyAll(runTopic(run))

	if err := s.options.Mailbox.Delete(ctx, offersSpace+a.name, run); err != nil {
		s.giveBack(ctx, a, run, offered.Until)
		return nil, err
	}

	document, found, err := s.options.Mailbox.Get(ctx, requestsSpace, run)
	if err != nil || !found {
		s.giveBack(ctx, a, run, offered.Until)
		return nil, err
	}

	return &turn{run: run, document: document}, nil
}

// giveBack ends a run that its program never heard of; who looks after it offers the turn again at once. If even that
// cannot be written the lease runs out.
func (s *Service) giveBack(ctx context.Context, agent *Agent, run string, until time.Time) {
	takes.WithLabelValues("undelivered").Inc()
	_, _ = s.rows.end(ctx, run, end{Outcome: undelivered}, until)
	s.ended(agent, run)
}

// ended wakes who waits for the end of a run on this node.
func (s *Service) ended(agent *Agent, run string) {
	s.notifier.notifyAll(runTopic(run))
	s.notifier.notifyAll(endsTopic(agent.name))
	s.sessions.forget(run)
}

// presence counts who works for an agent on this node: the requests that wait for a turn, and the turns that a program
// has. So many turns it may have at once; the others wait without a run, and nothing is offered in vain.
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

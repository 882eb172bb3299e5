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
	looked  map[string]time.Time // when a poller with the labels last looked for offers of other nodes

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
	return upstream.Down(0, fmt.Errorf("offer turn: %w", err))
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

	waiting := offer{Turn: turn.ID, Attempt: turn.Attempt, Until: mine.Until, Requires: turn.Requires}
	if err := rows.put(ctx, offersSpace+a.name, mine.Run, waiting, time.Now().Add(a.settings.MaxWait+a.settings.Lease)); err != nil {
		return nil, err
	}

	w := a.watch(turn, mine)
	if len(turn.Requires) > 0 { // the one who has waited longest may not have the labels
		a.service.notifier.notifyAll(offersTopic(a.name))
	} else {
		a.service.notifier.notify(offersTopic(a.name), 1)
	}
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

// due reports whether it is time to look for what other nodes offer. Of the pollers with the same labels one looks for all of this
// node.
func (a *Agent) due(has labels) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := has.key()
	if time.Since(a.looked[key]) < lookEvery {
		return false
	}

	if a.looked == nil || len(a.looked) > MaxPollers { // programs may show other labels each time
		a.looked = map[string]time.Time{}
	}
	a.looked[key] = time.Now()
	return true
}

// turn is a run that was taken.
type turn struct {
	run      string
	document []byte
}

// take returns the oldest turn that no program has and that requires nothing else than the labels, and wakes others when more are
// left; nil = there is none.
func (a *Agent) take(ctx context.Context, has labels) (*turn, error) {
	s, after, passed := a.service, "", false
	for {
		keys, values, err := s.options.Mailbox.List(ctx, offersSpace+a.name, after, offersPage)
		if err != nil {
			return nil, unavailable("taking a turn", err)
		}

		for i, run := range keys {
			after = run
			var offered offer
			if err := decode(values[i], &offered); err != nil {
				return nil, unavailable("taking a turn", err)
			}
			if !has.meet(offered.Requires) {
				passed = true
				continue
			}

			taken, err := a.claim(ctx, run, offered)
			switch {
			case err != nil:
				return nil, unavailable("taking a turn", err)
			case taken == nil:
			case passed:
				s.notifier.notifyAll(offersTopic(a.name))
				return taken, nil
			default:
				s.notifier.notify(offersTopic(a.name), len(keys)-i-1)
				return taken, nil
			}
		}

		if len(keys) < offersPage {
			return nil, nil
		}
	}
}

// claim takes one offer unless another caller was faster. A claim that may be stored has no holder: its run ends for want of a sign of
// life, and another run offers the turn.
func (a *Agent) claim(ctx context.Context, run string, offered offer) (*turn, error) {
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

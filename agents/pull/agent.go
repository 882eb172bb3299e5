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
// gave the turn up for good; without it nobody took the turn, its lease ran out, or the program asked for another try.
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
	a.service.bells.ringAll(runTopic(old.Run))
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
	a.service.bells.ring(offersTopic(a.name), 1)
	return w, nil
}

func (a *Agent) watch(turn agents.Turn, mine pointer) *watch {
	return &watch{
		agent: a, rows: a.service.rows, turn: turn, mine: mine, fold: normalized.NewFold(a.service.options.Limits),
		deadline: time.Now().Add(a.settings.MaxWait), idle: func() {},
	}
}

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/policypart"
)

var (
	callsEnded = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_dispatches_total",
		Help: "Calls of our agents to other agents that came to an end, by calling agent and outcome (completed, input_required, failed).",
	}, []string{"agent", "outcome"})
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "inbox_dispatch_seconds", Help: "From storing a call to the other agent's answer.",
		Buckets: []float64{.01, .05, .25, 1, 5, 15, 30, 60, 120},
	}, []string{"agent"})
)

// Caller calls an agent of another server and returns its answer. It may be asked again with the same call after a crash;
// the call's id is the id of the message on the wire. An error is classed by fault: Unavailable and not Permanent is
// tried again, everything else becomes a failed answer with the public text.
type Caller interface {
	Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error)
}

const (
	// callWithin bounds a call with all its attempts, from its creation.
	callWithin = 2 * time.Minute
	// holdFor is how long a job waits for an agent of this server before it makes room for other calls: the answer may
	// depend on one of them.
	holdFor  = 2 * time.Second
	makeRoom = 500 * time.Millisecond
)

// retryCalls are the waits between attempts to reach an agent; the last one repeats until callWithin.
var retryCalls = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// maxErrorWords bounds the sentence that goes with a failure of another agent.
const maxErrorWords = 4 << 10

// errStillRunning says that the called agent of this server has not answered yet.
var errStillRunning = errors.New("the agent has not answered yet")

// RunDispatch makes one call; it is the queue handler of DispatchKind. Whatever becomes of the call, the turn that waits
// for it goes on: an agent that cannot be reached is an answer, too.
func (s *Service) RunDispatch(ctx context.Context, job queue.Job) error {
	d, err := s.options.Store.Dispatch(ctx, job.Payload)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the row of the call is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	turn, err := s.options.Store.Turn(ctx, d.TurnID)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	ctx = telemetry.With(ctx, "turn", d.TurnID, "agent", d.Agent, "dispatch", d.ID, "to", d.To)
	if d.State != exchange.DispatchPending {
		return nil
	}
	if !asking(turn) { // cancelled meanwhile
		return s.finishCall(ctx, job, turn, d, failedCall(d, "dispatch:dropped", "The question was taken back."))
	}
	response, err := s.call(ctx, d)
	if err == nil {
		return s.finishCall(ctx, job, turn, d, s.received(d, response))
	}
	if ctx.Err() != nil { // the lease is lost or the server stops
		return ctx.Err()
	}
	return s.callFailed(ctx, job, turn, d, err)
}

// call asks the agent and waits for its answer, on this server without the network.
func (s *Service) call(ctx context.Context, d exchange.Dispatch) (answer normalized.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, "the call failed", panicError(p))
		}
	}()
	ctx, cancel := context.WithDeadline(ctx, deadlineOf(d))
	defer cancel()
	callee, here, err := s.here(d.From, d.To)
	switch {
	case err != nil:
		return normalized.Response{}, err
	case here:
		return s.callHere(ctx, d, callee)
	case s.options.Caller == nil:
		return normalized.Response{}, fault.GiveUp("agents of other servers cannot be called here", nil)
	}
	return s.options.Caller.Call(ctx, d)
}

// callFailed tries again what may pass while there is time, and answers with a plain sentence otherwise.
func (s *Service) callFailed(ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, cause error) error {
	f := fault.Of(cause)
	left := time.Until(deadlineOf(d))
	wait := max(retryCalls[min(job.Attempt, len(retryCalls))-1], f.RetryAfter)
	switch {
	case errors.Is(cause, errStillRunning) && left > makeRoom:
		return queue.SnoozeFor(makeRoom)
	case f.Kind == fault.Unavailable && !f.Permanent && left > wait:
		return queue.RetryAfter(wait, cause)
	}
	s.options.Logger.WarnContext(ctx, "another agent did not answer", "attempt", job.Attempt, "error", cause)
	code, words := refusal(d, f)
	return s.finishCall(ctx, job, turn, d, failedCall(d, code, words))
}

// codeUnreachable is that of a call that met nobody.
const codeUnreachable = "dispatch:unreachable"

// refusal says what became of a call in a code and in plain words.
func refusal(d exchange.Dispatch, f *fault.Fault) (code, words string) {
	switch f.Kind {
	case fault.Forbidden, fault.Unauthenticated, fault.RateLimited, fault.Malformed, fault.TooLarge, fault.Unsupported, fault.Conflict:
		return "dispatch:refused", fmt.Sprintf("%s does not take this question: %s", d.To, f.Public)
	}
	if errors.Is(f, errStillRunning) || errors.Is(f, context.DeadlineExceeded) {
		return codeUnreachable, d.To + " did not answer in time."
	}
	return codeUnreachable, d.To + " could not be reached."
}

func failedCall(d exchange.Dispatch, code, words string) normalized.Response {
	return normalized.Response{
		InReplyTo: d.ID, ThreadID: d.ThreadID, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(words)},
		Error: &normalized.ResponseError{Code: code, Message: words},
	}
}

// received makes an answer from outside fit to be kept: as data, with nothing that would steer our own reply.
func (s *Service) received(d exchange.Dispatch, answer normalized.Response) normalized.Response {
	answer.Clean()
	answer.InReplyTo, answer.ThreadID = d.ID, d.ThreadID
	answer.To, answer.Cc, answer.Visibility, answer.Metadata, answer.Dispatch = nil, nil, "", nil, nil
	if policy := answer.Policy(); policy != nil && answer.Outcome() == normalized.StatusCompleted { // a demand is no success
		answer.Status = policypart.ResponseStatus(policy.Kind)
	}
	if answer.Error != nil {
		answer.Error = &normalized.ResponseError{Code: answer.Error.Code, Message: cut(answer.Error.Message, maxErrorWords)}
	}
	answer = fitted(answer, s.options.Limits.Trace)
	if err := normalized.ValidateTrace(answer, s.options.Limits); err != nil {
		return unusable(d)
	}
	return answer
}

// finishCall stores the answer and ends the job. The last answer of a round also wakes the turn, in the same transaction.
func (s *Service) finishCall(ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, answer normalized.Response) error {
	now := time.Now()
	body, err := json.Marshal(map[string]string{"id": d.ID, "to": d.To, "status": answer.Outcome()})
	if err != nil {
		return err
	}
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		finished, err := tx.FinishDispatch(ctx, d.ID, answer, now)
		if err != nil || !finished {
			return err
		}
		// The row of the timeline also holds the turn: of two answers at once the second one sees the first.
		event := exchange.Event{Kind: exchange.EventDispatchAnswered, Body: body, At: now}
		if err := tx.AppendEvents(ctx, d.TurnID, []exchange.Event{event}); err != nil {
			return err
		}
		return s.wakeTurn(ctx, tx, turn, now)
	})
	if err != nil {
		return s.unfinished(ctx, job, turn, d, answer, err)
	}
	callsEnded.WithLabelValues(d.Agent, answer.Outcome()).Inc()
	callSeconds.WithLabelValues(d.Agent).Observe(now.Sub(d.CreatedAt).Seconds())
	return queue.ErrSettled
}

// codeUnusable is that of an answer that cannot be kept.
const codeUnusable = "dispatch:unusable"

// unfinished sees to it that a turn never waits for ever: a database that is down is asked again until it is there, an
// answer that it does not take for good is replaced by a word about it.
func (s *Service) unfinished(
	ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, answer normalized.Response, cause error,
) error {
	switch {
	case errors.Is(cause, queue.ErrLeaseLost) || ctx.Err() != nil:
		return cause
	case fault.Is(cause, fault.Unavailable) || answer.Error != nil && answer.Error.Code == codeUnusable:
		return queue.RetryAfter(time.Second, cause)
	}
	s.options.Logger.ErrorContext(ctx, "store the answer of another agent", "error", cause)
	return s.finishCall(ctx, job, turn, d, unusable(d))
}

func unusable(d exchange.Dispatch) normalized.Response {
	return failedCall(d, codeUnusable, d.To+" gave an answer that cannot be understood.")
}

// wakeTurn lets the turn run again when nothing is pending any more. A turn that was cancelled stays as it is.
func (s *Service) wakeTurn(ctx context.Context, tx Tx, turn exchange.TurnRecord, now time.Time) error {
	calls, err := tx.Dispatches(ctx, turn.ID)
	if err != nil || pending(calls) {
		return err
	}
	resumed, err := tx.ResumeTurn(ctx, turn.ID, nil, traceOf(turn, calls, s.options.Limits), now)
	if err != nil || !resumed {
		return err
	}
	return tx.Enqueue(ctx, resumedJob(turn))
}

func pending(calls []exchange.Dispatch) bool {
	for _, d := range calls {
		if d.State == exchange.DispatchPending {
			return true
		}
	}
	return false
}

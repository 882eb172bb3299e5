package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"inbox/internal/fault"
)

// verdict is a handler's typed choice of an outcome.
type verdict struct {
	kind   OutcomeKind
	after  time.Duration
	reason string
	cause  error
}

// Error returns the reason and the cause.
func (v *verdict) Error() string {
	switch {
	case v.cause == nil:
		return v.reason
	case v.reason == "":
		return v.cause.Error()
	}
	return v.reason + ": " + v.cause.Error()
}

// Unwrap returns the cause.
func (v *verdict) Unwrap() error { return v.cause }

// RetryAfter has a handler's job run again after d; the attempt counts, and err is the reason that the operator
// reads. A d of zero means the kind's schedule.
func RetryAfter(d time.Duration, err error) error {
	return &verdict{kind: Retry, after: d, reason: "retry", cause: err}
}

// SnoozeFor has a handler's job run again after d as if this run had not been.
func SnoozeFor(d time.Duration) error {
	return &verdict{kind: Snooze, after: max(d, 0), reason: "snoozed"}
}

// SnoozeBecause is SnoozeFor with the reason that the operator reads while the job waits.
func SnoozeBecause(d time.Duration, err error) error {
	return &verdict{kind: Snooze, after: max(d, 0), reason: "snoozed", cause: err}
}

// PutBack has a handler's job wait in its old place, as if this run had not been: what it needs is not there, and
// KindOptions.Limit holds its group back until it is.
func PutBack() error {
	return &verdict{kind: Snooze, after: -1, reason: "put back"}
}

// GiveUp makes a handler's job a dead letter with the reason; err may be nil.
func GiveUp(reason string, err error) error {
	return &verdict{kind: Dead, reason: reason, cause: err}
}

// Classed makes the outcome of a job of the class of its error: what fault.GiveUp made is a dead letter, what fault.RetryIn made
// runs again when it says, and the rest by the kind's schedule.
func Classed(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}

	f := fault.Of(err)
	switch {
	case f.Permanent:
		return GiveUp(f.Public, err)
	case f.RetryAfter > 0:
		return RetryAfter(max(f.RetryAfter, time.Second), err)
	}
	return err
}

// outcome translates what a handler returned. attempt is the number of the run that ended.
func (o KindOptions) outcome(attempt int, err error, now time.Time) Outcome {
	var v *verdict
	switch {
	case err == nil:
		return Outcome{Kind: Done}
	case !errors.As(err, &v):
		v = &verdict{kind: Retry, cause: err}
	case v.kind == Dead:
		return Outcome{Kind: Dead, Reason: err.Error()}
	case v.kind == Snooze && v.after < 0:
		return Outcome{Kind: Snooze}
	case v.kind == Snooze:
		outcome := Outcome{Kind: Snooze, At: now.Add(v.after)}
		if v.cause != nil {
			outcome.Reason = v.cause.Error()
		}
		return outcome
	}

	if o.usedUp(attempt, v) {
		return Outcome{Kind: Dead, Reason: fmt.Sprintf("gave up after %d attempts: %v", attempt, err)}
	}

	wait := v.after
	if wait <= 0 {
		wait = o.wait(attempt)
	}

	return Outcome{Kind: Retry, At: now.Add(wait), Reason: err.Error()}
}

func (o KindOptions) usedUp(attempt int, v *verdict) bool {
	if o.MaxAttempts > 0 {
		return attempt >= o.MaxAttempts
	}
	return v.after <= 0 && o.Backoff == nil && attempt > len(o.Schedule)
}

// wait draws the wait after an attempt evenly between nothing and its bound (full jitter).
func (o KindOptions) wait(attempt int) time.Duration {
	bound := o.Schedule[min(attempt, len(o.Schedule))-1]
	if o.Backoff != nil {
		bound = o.Backoff(attempt)
	}
	return rand.N(max(bound, time.Millisecond))
}

var (
	errStopping = errors.New("the server is stopping")
	errOverdue  = errors.New("the run took longer than the kind allows")
)

// endedBy reports whether a run ended because its context did, with the cause, and its handler chose no outcome for that.
func endedBy(ctx context.Context, err, cause error) bool {
	if err == nil || !errors.Is(context.Cause(ctx), cause) {
		return false
	}
	var v *verdict
	return !errors.As(err, &v) || errors.Is(err, context.Canceled)
}

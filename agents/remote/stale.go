package remote

import (
	"context"
	"errors"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// stale reports whether the agent does not know the conversation, or its open task, any more.
func (x *exchange) stale(err error) bool {
	if x.thread.Open != nil && errors.Is(err, a2a.ErrUnsupportedOperation) {
		return true
	}
	return x.thread != (thread{}) &&
		(errors.Is(err, a2a.ErrTaskNotFound) || errors.Is(err, a2a.ErrInvalidParams) || errors.Is(err, a2a.ErrInvalidRequest))
}

// loosen goes on without the open task, and then without the conversation.
func (x *exchange) loosen() {
	if x.thread.Open == nil {
		x.thread.Context = ""
	}
	x.thread.Open, x.asked = nil, ""
}

func (x *exchange) waitsForLogin() bool {
	waiting := x.continued()
	return waiting != nil && waiting.Login
}

// askAgain takes a task that takes no messages while it waits for a login: what it wants, or what has become of it.
func (x *exchange) askAgain(ctx context.Context) error {
	found, seen, err := x.look(ctx, a2a.TaskID(x.continued().Task))
	if err != nil {
		return failure(ctx, seen, err)
	}
	x.asked = ""
	return x.take(ctx, found)
}

// overMeanwhile takes a task that waited for a login and has gone on by itself.
func (x *exchange) overMeanwhile(ctx context.Context) (over bool, err error) {
	if !x.waitsForLogin() {
		return false, nil
	}
	found, _, err := x.look(ctx, a2a.TaskID(x.continued().Task))
	if err != nil || found.Status.State != a2a.TaskStateCompleted && found.Status.State != a2a.TaskStateWorking {
		return false, nil //nolint:nilerr // then it is asked anew
	}
	x.cut = true
	return true, x.take(ctx, found)
}

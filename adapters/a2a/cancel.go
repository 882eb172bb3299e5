package a2a

import (
	"context"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/internal/fault"
)

// cancel ends the newest turn of a task, or gives up a task that waits for its owner.
func (h *handler) cancel(ctx context.Context, c *call, id a2a.TaskID) (*task, error) {
	t, err := h.load(ctx, c.owner, id)
	if err != nil {
		return nil, err
	}
	if !exchange.Terminal(t.last().State) {
		turn, err := h.options.Runs.Cancel(ctx, t.last().ID, "the sender cancelled the task")
		if err == nil {
			*t.last() = turn
			return t, nil
		}
		if !fault.Is(err, fault.Conflict) {
			return nil, err
		}
		if t, err = h.load(ctx, c.owner, id); err != nil { // it ended meanwhile, perhaps with a question
			return nil, err
		}
	}
	if !interrupted(t.state()) {
		return nil, notCancelable()
	}
	at := time.Now().UTC().Truncate(time.Microsecond)
	err = h.options.Runs.GiveUp(ctx, t.last().ID, cancellation(t.last().ID, at), "the sender cancelled the task", at)
	switch {
	case fault.Is(err, fault.Conflict):
		return nil, notCancelable()
	case err != nil:
		return nil, err
	}
	return h.load(ctx, c.owner, id)
}

func notCancelable() *problem {
	return newProblem(a2a.ErrTaskNotCancelable, "the task has ended or goes on already")
}

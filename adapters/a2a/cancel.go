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
	claimed, err := h.claimCancellation(ctx, t.last().ID, at)
	if err != nil {
		return nil, err
	}
	if !claimed {
		return nil, notCancelable()
	}
	// The task is cancelled by its claim. Should the process die here, only lists and webhooks have missed it.
	if err := h.options.Runs.GiveUp(context.WithoutCancel(ctx), t.last().ID, "the sender cancelled the task", at); err != nil {
		return nil, err
	}
	return h.load(ctx, c.owner, id)
}

func notCancelable() *problem {
	return newProblem(a2a.ErrTaskNotCancelable, "the task has ended or goes on already")
}

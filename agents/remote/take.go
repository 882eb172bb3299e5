package remote

import (
	"context"
	"errors"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
)

// done reports whether the answer is there.
func (x *exchange) done() bool {
	return x.said != nil || x.task.settled() && (!x.task.waits() || x.asked == "" || x.asked != x.task.asked())
}

// take handles whatever the other agent says, from a stream, an answer or a look at the task.
func (x *exchange) take(ctx context.Context, event a2a.Event) error {
	var err error
	switch e := event.(type) {
	case *a2a.Message:
		err = x.hear(e)
	case *a2a.Task:
		if e == nil {
			return upstream.NotUsable(errors.New("an event is empty"))
		}
		err = x.task.replace(e, x.peer.rest)
	case *a2a.TaskStatusUpdateEvent:
		if err = x.task.setStatus(e, x.peer.rest); err == nil && !x.task.settled() {
			x.preview.status(e.Status.Message)
		}
	case *a2a.TaskArtifactUpdateEvent:
		if err = x.task.grow(e, x.peer.rest); err == nil {
			x.preview.artifact(e, x.peer.card.textMIME())
		}
	default:
		err = errors.New("an event is of no known kind")
	}
	if err != nil {
		return upstream.NotUsable(err)
	}
	if err := x.note(ctx); err != nil {
		return err
	}
	if !x.preview.flush(x.emit) {
		return errStopped
	}
	return nil
}

func (x *exchange) hear(message *a2a.Message) error {
	if message == nil || message.ContextID != "" && !usableID(message.ContextID, false) {
		return errors.New("the answer is no message")
	}
	x.said = message
	return nil
}

// note keeps the id of the task as soon as it is known: the next attempt goes on with it instead of asking twice.
func (x *exchange) note(ctx context.Context) error {
	if x.noted || x.task.id == "" {
		return nil
	}
	x.noted = true
	return x.agent.keep(ctx, x.agent.turnKey(x.turn, x.id), progress{Task: string(x.task.id), Context: x.task.context}, turnLife)
}

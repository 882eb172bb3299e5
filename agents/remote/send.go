package remote

import (
	"context"
	"errors"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/clock"
	"inbox/internal/fault"
)

// continued returns the task that the message answers: the open one of the thread, if its question was put to this sender.
func (x *exchange) continued() *open {
	waiting := x.thread.Open
	if waiting == nil || waiting.Principal != x.turn.Message.Sender.Principal() || !usableID(waiting.Task, x.peer.rest) {
		return nil
	}
	return waiting
}

// maxBusyTries is how often a task that was just left waiting is sent its answer.
const maxBusyTries = 4

// send brings the message to the agent in the best way that it takes. What is refused without having been read is sent
// again in the next way; each way is left once at most, so that this ends.
func (x *exchange) send(ctx context.Context) error {
	if waiting := x.continued(); waiting != nil {
		x.asked = waiting.Asked
		err := x.agent.keep(ctx, x.agent.turnKey(x.turn, x.id), progress{Task: waiting.Task, Context: x.thread.Context, Asked: waiting.Asked}, turnLife)
		if err != nil {
			return err
		}
	}

	loggedIn, otherWay, streamed := false, false, x.peer.streaming
	for tries := 0; ; {
		seen, err := x.sendOnce(ctx)
		switch {
		case err == nil || errors.Is(err, errStopped):
			return err
		case x.task.id != "": // it arrived; follow finds out how it goes on
			x.cut = true
			return x.lasting(ctx, seen, err)
		case unauthenticated(seen, err) && !loggedIn && x.agent.credentials.renewable():
			loggedIn = true
			x.agent.credentials.reject()
		case errors.Is(err, a2a.ErrInternalError) && x.continued() != nil && tries < maxBusyTries:
			// The run that asked the question may not be over there for a moment.
			tries++
			if clock.Sleep(ctx, x.agent.options.PollInterval) != nil {
				return failure(ctx, seen, err)
			}
		case errors.Is(err, a2a.ErrInternalError) && x.waitsForLogin():
			return x.askAgain(ctx)
		case x.stale(err):
			if over, err := x.overMeanwhile(ctx); over || err != nil {
				return err
			}
			x.loosen()
		case notOffered(seen, err) && x.peer.streaming:
			if err := x.reach(x.agent.changed(x.peer, stopStreaming)); err != nil {
				return err
			}
		case otherVersion(seen, err) && !otherWay:
			otherWay = true
			if err := x.reach(x.agent.changed(x.peer, func(p *peer) { p.switchVersion(streamed) })); err != nil {
				return err
			}
		default:
			if moved(seen, err) {
				x.agent.forget(x.peer)
			}
			return failure(ctx, seen, err)
		}
	}
}

// lasting keeps the errors that end the run although the task may go on there: ours, and those that no waiting mends.
func (x *exchange) lasting(ctx context.Context, seen *sighting, err error) error {
	classified := failure(ctx, seen, err)
	if errors.Is(classified, errTooLong) { // a stream repeats much that the task itself says once
		x.long = true
		return nil
	}
	if _, ours := errors.AsType[*fault.Fault](err); ours || ctx.Err() != nil || isPermanent(classified) {
		return classified
	}
	return nil
}

func unauthenticated(seen *sighting, err error) bool {
	return seen.status == http.StatusUnauthorized || errors.Is(err, a2a.ErrUnauthenticated)
}

// notOffered reports whether a way of asking is unknown there.
func notOffered(seen *sighting, err error) bool {
	if seen.status == http.StatusNotFound || seen.status == http.StatusMethodNotAllowed || seen.status == http.StatusNotImplemented {
		return true
	}
	return seen.status != 0 && (errors.Is(err, a2a.ErrMethodNotFound) || errors.Is(err, a2a.ErrUnsupportedOperation))
}

// moved reports whether a new card may help.
func moved(seen *sighting, err error) bool {
	return seen.status == 0 || seen.status/100 == 3 || seen.status == http.StatusGone || otherVersion(seen, err)
}

func otherVersion(seen *sighting, err error) bool {
	return notOffered(seen, err) || errors.Is(err, a2a.ErrVersionNotSupported)
}

// sendOnce sends the message in the way that the agent is known to take.
func (x *exchange) sendOnce(ctx context.Context) (*sighting, error) {
	seen := &sighting{}
	message, err := x.message(ctx)
	if err != nil {
		return seen, err
	}
	if x.peer.streaming {
		return x.stream(ctx, message)
	}
	return x.ask(ctx, message, true)
}

// ask sends the message for a whole answer: for the task at once, or for the end of it.
func (x *exchange) ask(ctx context.Context, message *a2a.Message, immediately bool) (*sighting, error) {
	watchedCtx, seen := watched(ctx)
	some := historyLength
	result, err := x.wire.transport.SendMessage(watchedCtx, x.wire.params(), &a2a.SendMessageRequest{
		Tenant: x.peer.tenant, Message: message,
		Config: &a2a.SendMessageConfig{ReturnImmediately: immediately, HistoryLength: &some, AcceptedOutputModes: outputModes},
	})
	if err != nil {
		return seen, err
	}
	return seen, x.take(ctx, result)
}

// outputModes are the types that we like best; everything else is taken, too.
var outputModes = []string{"text/markdown", "text/plain", "image/*", "application/json", "*/*"}

// stream sends the message and reads events until the answer is there or the stream ends.
func (x *exchange) stream(ctx context.Context, message *a2a.Message) (*sighting, error) {
	watchedCtx, seen := watched(ctx)
	events := x.wire.transport.SendStreamingMessage(watchedCtx, x.wire.params(), &a2a.SendMessageRequest{
		Tenant: x.peer.tenant, Message: message, Config: &a2a.SendMessageConfig{AcceptedOutputModes: outputModes},
	})

	begun := false
	for event, err := range events {
		if err != nil {
			return seen, err
		}
		begun = true
		if err := x.take(ctx, event); err != nil || x.done() {
			return seen, err
		}
	}

	if !begun {
		return seen, errNoEvent
	}

	x.cut = true // an end in the middle says nothing about the task
	return seen, nil
}

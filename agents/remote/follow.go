package remote

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

const (
	maxResubscribes = 5 // of one turn; after that the task is polled
	maxBlindPolls   = 8 // in a row that fail
	maxSamePolls    = 5 // that show the question which the message answers
)

// follow waits for the end of a task: by its stream, taken up again where it was cut, and else by looking at it.
func (x *exchange) follow(ctx context.Context) error {
	pause := x.agent.options.PollInterval
	for tries := 0; !x.done() && x.peer.streaming && tries < maxResubscribes; tries++ {
		if tries > 0 && !sleep(ctx, pause) {
			return upstream.Interrupted(ctx, ctx.Err())
		}
		if tries > 0 {
			pause *= 2
		}
		offered, err := x.subscribe(ctx)
		if err != nil {
			return err
		}
		if !offered {
			break
		}
	}
	if !x.done() {
		return x.poll(ctx)
	}
	if x.cut && x.said == nil {
		return x.complete(ctx)
	}
	return nil
}

// subscribe takes the stream of the task up again. offered is false where that cannot be done.
func (x *exchange) subscribe(ctx context.Context) (offered bool, err error) {
	recoveries.WithLabelValues("resubscribed").Inc()
	x.cut = true
	watchedCtx, seen := watched(ctx)
	events := x.wire.transport.SubscribeToTask(watchedCtx, x.wire.params(), &a2a.SubscribeToTaskRequest{Tenant: x.peer.tenant, ID: x.task.id})
	for event, err := range events {
		switch {
		case err != nil && (noSuchThing(err) || notOffered(seen, err) || errors.Is(err, a2a.ErrInvalidParams)):
			return false, nil
		case err != nil:
			return true, lasting(ctx, seen, err)
		}
		if err := x.take(ctx, event); err != nil || x.done() {
			return true, err
		}
	}
	return true, nil
}

// complete reads the whole task once more, because a part of its updates may have been missed. Where that fails, what
// has come has to do.
func (x *exchange) complete(ctx context.Context) error {
	found, _, err := x.look(ctx, x.task.id)
	if err != nil || found.Status.State != x.task.status.State {
		return nil //nolint:nilerr // see above
	}
	return x.take(ctx, found)
}

// poll looks at the task again and again, less and less often.
func (x *exchange) poll(ctx context.Context) error {
	recoveries.WithLabelValues("polled").Inc()
	first, longest := true, 20*x.agent.options.PollInterval
	blind, same := 0, 0
	for pause := x.agent.options.PollInterval; !x.done(); pause = min(2*pause, longest) {
		if !sleep(ctx, pause) {
			return upstream.Interrupted(ctx, ctx.Err())
		}
		found, seen, err := x.look(ctx, x.task.id)
		switch {
		case err == nil:
			blind = 0
			if err := x.take(ctx, found); err != nil {
				return err
			}
			if same++; same >= maxSamePolls && x.task.waits() {
				x.asked = "" // it asks the very same again
			}
		case first && (noSuchThing(err) || notOffered(seen, err)):
			return x.block(ctx)
		case passing(seen, err) && blind < maxBlindPolls:
			blind++
		default:
			return failure(ctx, seen, err)
		}
		first = false
	}
	return nil
}

// passing reports whether the failure of a look may be over at the next one.
func passing(seen *sighting, err error) bool {
	if isPermanent(err) || errors.Is(err, safehttp.ErrRefused) || errors.Is(seen.cut, safehttp.ErrTooLarge) {
		return false
	}
	return seen.status == 0 || seen.status == http.StatusTooManyRequests || seen.status >= http.StatusInternalServerError ||
		seen.cut != nil || errors.Is(err, a2a.ErrInternalError) || errors.Is(err, a2a.ErrServerError)
}

func isPermanent(err error) bool {
	known, ok := errors.AsType[*fault.Fault](err)
	return ok && known.Permanent
}

// block asks an agent that gives tasks but does not show them: the same message again, for the end this time.
func (x *exchange) block(ctx context.Context) error {
	recoveries.WithLabelValues("repeated").Inc()
	message, err := x.message(ctx)
	if err != nil {
		return err
	}
	x.task = task{}
	seen, err := x.ask(ctx, message, false)
	switch {
	case errors.Is(err, errStopped):
		return err
	case err != nil:
		return failure(ctx, seen, err)
	case !x.done():
		return fault.RetryIn(0, upstream.Late, errors.New("the agent gives tasks, shows none and does not wait for their end"))
	}
	return nil
}

// sleep is false when ctx ended first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

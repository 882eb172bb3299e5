package chat

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

var (
	streams = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_chat_streams_open", Help: "Streams of growing answers that clients hold open.",
	})
	dropped = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_chat_readers_dropped_total", Help: "Readers of streams that took too long for a frame.",
	})
)

// frames writes the deltas and the end of a run in the form of one surface.
type frames interface {
	begin(found run) []event                       // before everything else
	delta(found run, delta contract.Delta) []event // one step of the answer
	end(found run, steps []exchange.Event) []event // the last ones, with what the agent did; the turn is settled
}

// choosing are frames whose reader executes not every tool.
type choosing interface {
	// over reports whether the stream of a run ends that waits for tools of the asker.
	over(found run) bool
}

// breaking are frames that tell a reader that the server cuts its stream off.
// Last is the id of the last event that the reader has.
type breaking interface {
	broken(found run, last string) []event
}

// event is one server-sent event.
type event struct {
	name string // empty = message
	data any    // encoded as JSON; a string of its own is written as it is
}

// stream follows the events of a turn until it is settled. The headers leave at once, so that the reader knows that its
// message is kept. Without a reader the stream ends and the run goes on.
func (a *Adapter) stream(w http.ResponseWriter, r *http.Request, found run, form frames) error {
	streams.Inc()
	defer streams.Dec()
	ctx, stop := whileServing(r.Context())
	defer stop()
	out := openEvents(ctx, w, a.options, stop)
	defer out.out.Close()
	f := follower{adapter: a, out: out, form: form, found: found, last: eventID(found.turn.ID, max(found.after, found.from))}
	out.write("", form.begin(found)...)
	err := f.follow(ctx)
	if err != nil && ctx.Err() == nil {
		a.log.ErrorContext(ctx, "a chat stream broke", "turn", found.turn.ID, "error", err)
	}
	if told, is := form.(breaking); is && err != nil && r.Context().Err() == nil {
		out.write("", told.broken(found, f.last)...)
	}
	return nil
}

// follower turns the events of one turn into frames for one reader.
type follower struct {
	adapter  *Adapter
	out      eventWriter
	form     frames
	found    run
	progress progress
	steps    []exchange.Event // what the agent did, for the usage at the end
	last     string           // id of the last event that was written
}

func (f *follower) follow(ctx context.Context) error {
	for one, err := range f.adapter.options.Runs.Follow(ctx, f.found.turn.ID, f.found.from) {
		if err != nil {
			return err
		}
		over, err := f.event(ctx, one)
		if over || err != nil {
			return err
		}
	}
	return nil
}

// event writes what a row means for the reader and reports whether the stream is over. Rows that the reader has already are
// read again, because what follows depends on them.
func (f *follower) event(ctx context.Context, one exchange.Event) (over bool, err error) {
	state, isState := strings.CutPrefix(one.Kind, "turn.")
	switch {
	case one.Kind == exchange.EventDelta:
		deltas, err := f.progress.add(one, f.adapter.options.ShowsTools(f.found.turn.Agent))
		if err != nil || one.Seq <= f.found.after {
			return false, err
		}
		return !f.deltas(one, deltas), nil
	case one.Kind == exchange.EventRestarted, state == exchange.StateRunning && isState:
		f.progress.restart()
	case one.Kind == exchange.EventModelCalled:
		f.steps = append(f.steps, one)
	case isState && exchange.Settled(state):
		return f.settled(ctx, one)
	}
	return false, nil
}

// deltas writes the steps of one row; the last carries the row's id, so that a reader that was cut off between them gets
// all of them again. It reports whether the reader is still there.
func (f *follower) deltas(one exchange.Event, deltas []contract.Delta) bool {
	var list []event
	for _, delta := range deltas {
		list = append(list, f.form.delta(f.found, delta)...)
	}
	f.last = eventID(one.TurnID, one.Seq)
	return len(list) == 0 || f.out.write(f.last, list...)
}

// settled ends the stream of a turn that ended, or that waits for somebody.
func (f *follower) settled(ctx context.Context, one exchange.Event) (over bool, err error) {
	turn, err := f.adapter.options.Turns.Turn(ctx, one.TurnID)
	if err != nil || !f.adapter.settled(turn) {
		return false, err // it waited once, and goes on
	}
	if f.found.patient && !exchange.Terminal(turn.State) && !f.adapter.askerRuns(turn) {
		return false, nil
	}
	f.found.turn = turn
	if f.found.calls, err = f.adapter.calls(ctx, turn); err != nil {
		return false, err
	}
	if form, is := f.form.(choosing); is && !form.over(f.found) {
		return false, nil
	}
	f.out.write(eventID(one.TurnID, one.Seq), f.form.end(f.found, f.steps)...)
	return true, nil
}

// allowWait lets a plain answer take longer than the server allows for an ordinary one.
func allowWait(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + time.Minute))
}

// whileServing returns a context that ends when the server begins to stop.
func whileServing(ctx context.Context) (context.Context, context.CancelFunc) {
	serving, cancel := context.WithCancel(ctx)
	if stopping := httpserver.Stopping(ctx); stopping != nil {
		go func() {
			select {
			case <-stopping:
				cancel()
			case <-serving.Done():
			}
		}()
	}
	return serving, cancel
}

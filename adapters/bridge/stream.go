package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// stream returns the growing answer of a run as server-sent events: accepted, then text as it grows (restarted = what was
// sent is void), and in the end done with the whole run, or
// resume with the place to go on from when the server stops before. The ids of the events are those of the timeline: who was cut off
// goes on behind one of them with Last-Event-ID at /v1/runs/{run}/events.
func (a *Adapter) stream(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord, after int64) error {
	ctx, stop := whileServing(r.Context())
	defer stop()
	out := a.openEvents(ctx, w, stop)
	defer out.Close()
	first := runOf(turn, a.options.Present)
	delete(first, "reply")
	delete(first, "messages")
	if after == 0 && !out.Write(event("accepted", "", first)) {
		return nil
	}
	last := after
	for one, err := range a.options.Runs.Follow(ctx, turn.ID, after) {
		if err != nil {
			if r.Context().Err() == nil { // the server stops: the reader goes on here or at another node
				out.Write(event("resume", "", map[string]any{"run_id": first["run_id"], "after": last, "reason": "stream_cut"}))
			}
			return nil
		}
		last = one.Seq
		if !a.pass(out, one) {
			return nil
		}
		if settles(one) {
			break
		}
	}
	settled, err := a.options.Runs.Wait(ctx, turn.ID)
	if err != nil {
		return nil
	}
	out.Write(event("done", "", runOf(settled, a.options.Present)))
	return nil
}

// settles reports whether nothing follows for now.
func settles(one exchange.Event) bool {
	state, is := strings.CutPrefix(one.Kind, "turn.")
	return is && exchange.Settled(state)
}

// pass writes what of a timeline a program may see.
func (a *Adapter) pass(out *httpserver.EventWriter, one exchange.Event) bool {
	id := strconv.FormatInt(one.Seq, 10)
	switch one.Kind {
	case exchange.EventRestarted:
		return out.Write(event("restarted", id, map[string]any{}))
	case exchange.EventDelta:
		var delta normalized.Delta
		if json.Unmarshal(one.Body, &delta) != nil {
			return true
		}
		grown := delta.Text
		if delta.Kind == normalized.DeltaPartBegin && delta.Part != nil && delta.Part.Kind == normalized.PartText {
			grown = delta.Part.Content
		}
		return grown == "" || out.Write(event("delta", id, map[string]any{"text": grown}))
	case "turn." + exchange.StateRunning:
		return out.Write(event("status", id, map[string]any{"status": "running"}))
	}
	return true
}

// lastEvent reads after which event a reader goes on.
func lastEvent(r *http.Request) (int64, error) {
	given := r.Header.Get("Last-Event-ID")
	if given == "" {
		given = r.URL.Query().Get("after")
	}
	if given == "" {
		return 0, nil
	}
	seq, err := strconv.ParseInt(given, 10, 64)
	if err != nil || seq < 0 {
		return 0, fault.InField("Last-Event-ID", "is not the id of an event of this run")
	}
	return seq, nil
}

var dropped = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_bridge_readers_dropped_total", Help: "Readers of streams that were gone or too slow.",
})

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

func (a *Adapter) openEvents(ctx context.Context, w http.ResponseWriter, stop func()) *httpserver.EventWriter {
	return httpserver.OpenEvents(ctx, w, httpserver.EventOptions{
		KeepAlive: a.options.KeepAlive, WriteTimeout: a.options.WriteTimeout, Dropped: dropped.Inc,
	}, stop)
}

// event is one server-sent event with its data as JSON.
func event(name, id string, data any) httpserver.Event {
	return httpserver.Event{Name: name, ID: id, Data: compact(data)}
}

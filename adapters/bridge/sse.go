package bridge

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/httpserver"
)

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

package bridge

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/httpserver"
)

var dropped = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_bridge_readers_dropped_total", Help: "Readers of streams that were gone or too slow.",
})

// whileServing gives a context that ends when the server begins to stop.
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

// event is one server-sent event; data is written as JSON.
type event struct {
	name, id string
	data     any
}

// eventWriter writes server-sent events and drops a reader that takes too long.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	stop    context.CancelFunc

	mu    sync.Mutex
	gone  bool
	done  chan struct{}
	beats sync.WaitGroup
}

// newEventWriter sends the headers and keeps the connection alive until close.
func (a *Adapter) newEventWriter(ctx context.Context, w http.ResponseWriter, stop context.CancelFunc) *eventWriter {
	e := &eventWriter{w: w, control: http.NewResponseController(w), timeout: a.options.WriteTimeout, stop: stop, done: make(chan struct{})}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would gather the events
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	e.send([]byte(": open\n\n"))
	e.beats.Go(func() { e.beat(ctx, a.options.KeepAlive) })
	return e
}

func (e *eventWriter) beat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.send([]byte(": still here\n\n"))
		case <-ctx.Done():
			return
		case <-e.done:
			return
		}
	}
}

// write sends one event and says whether the reader is still there.
func (e *eventWriter) write(one event) bool {
	var out bytes.Buffer
	if one.id != "" && !strings.ContainsAny(one.id, "\r\n\x00") {
		out.WriteString("id: " + one.id + "\n")
	}
	out.WriteString("event: " + one.name + "\ndata: ")
	out.Write(compact(one.data))
	out.WriteString("\n\n")
	return e.send(out.Bytes())
}

func (e *eventWriter) send(content []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(e.timeout))
	_, err := e.w.Write(content)
	if err == nil {
		err = e.control.Flush()
	}
	if err != nil {
		e.gone = true
		dropped.Inc()
		e.stop()
	}
	return err == nil
}

// close waits until nothing is written any more.
func (e *eventWriter) close() {
	close(e.done)
	e.beats.Wait()
	_ = e.control.SetWriteDeadline(time.Time{})
}

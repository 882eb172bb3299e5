package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// EventOptions configure an EventWriter.
type EventOptions struct {
	KeepAlive    time.Duration // comment lines on a quiet stream, so that proxies do not close it
	WriteTimeout time.Duration // a reader that takes longer for one write is dropped
	Dropped      func()        // hears once of a reader that was gone or too slow; may be nil
}

// Event is one server-sent event. Name and ID may be empty; an ID with a line break or NUL is left out, as readers would
// ignore it.
type Event struct {
	Name, ID string
	Data     []byte
}

// EventWriter writes server-sent events (HTML standard, section 9.2). It never waits for a reader longer than its
// WriteTimeout, so that a slow one costs the others nothing. It is safe for concurrent use.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	options EventOptions
	stop    func()

	mu     sync.Mutex
	gone   bool
	closed chan struct{}
	beats  sync.WaitGroup
}

// OpenEvents sends the headers and keeps the connection alive until ctx ends or Close. stop is called when the reader is
// gone: it ends whatever produces the events.
func OpenEvents(ctx context.Context, w http.ResponseWriter, options EventOptions, stop func()) *EventWriter {
	e := &EventWriter{w: w, control: http.NewResponseController(w), options: options, stop: stop, closed: make(chan struct{})}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would gather the events
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	e.send(nil)
	e.beats.Go(func() { e.beat(ctx) })
	return e
}

func (e *EventWriter) beat(ctx context.Context) {
	ticker := time.NewTicker(e.options.KeepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.send([]byte(": still here\n\n"))
		case <-ctx.Done():
			return
		case <-e.closed:
			return
		}
	}
}

// Write sends events at once and reports whether the reader is still there.
func (e *EventWriter) Write(events ...Event) bool {
	var out bytes.Buffer
	for _, one := range events {
		one.append(&out)
	}
	return out.Len() == 0 || e.send(out.Bytes())
}

func (e Event) append(out *bytes.Buffer) {
	if e.ID != "" && !strings.ContainsAny(e.ID, "\r\n\x00") {
		out.WriteString("id: " + e.ID + "\n")
	}
	if e.Name != "" {
		out.WriteString("event: " + e.Name + "\n")
	}

	for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
		out.WriteString("data: ")
		out.Write(line)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}

func (e *EventWriter) send(content []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.gone {
		return false
	}

	_ = e.control.SetWriteDeadline(time.Now().Add(e.options.WriteTimeout))
	_, err := e.w.Write(content)
	if err == nil {
		err = e.control.Flush()
	}
	if err != nil {
		e.drop()
	}

	return err == nil
}

func (e *EventWriter) drop() {
	e.gone = true
	if e.options.Dropped != nil {
		e.options.Dropped()
	}
	e.stop()
}

// Close waits until nothing is written any more. The deadline of a reader that is there ends with it, so that the
// connection can be used again.
func (e *EventWriter) Close() {
	close(e.closed)
	e.beats.Wait()
	if !e.gone {
		_ = e.control.SetWriteDeadline(time.Time{})
	}
}

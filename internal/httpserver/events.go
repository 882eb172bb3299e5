package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// EventOptions configure an EventWriter.
type EventOptions struct {
	KeepAlive    time.Duration // between comment lines, so that proxies do not close a quiet stream
	Retry        time.Duration // how long a reader waits before it connects again; 0 leaves it to the reader
	WriteTimeout time.Duration // a reader that takes longer for one write is dropped
	Dropped      func()        // hears once of a reader that was gone or too slow; may be nil
}

// Event is one server-sent event. Name and ID may be empty; an ID with a line break or NUL is left out, as readers would
// ignore it.
type Event struct {
	Name, ID string
	Data     []byte
	Retry    time.Duration // the wait before the reader connects again from now on; 0 changes nothing
}

// StoppingEvent is the last event of a stream that ends because the server stops: the reader connects again, here or at
// another node.
func StoppingEvent() Event {
	return Event{Name: "stopping", Retry: time.Second, Data: []byte(`{"reason":"server_stopping"}`)}
}

// EventComment is a comment line, which keeps a quiet stream alive. No empty line follows it: after an event with an id,
// httpx-sse and the decoder of openai-python dispatch an event without data at each empty line, where the HTML standard
// (section 9.2.6) dispatches none.
const EventComment = ": still here\n"

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
	e := &EventWriter{w: w, control: controller(w), options: options, stop: stop, closed: make(chan struct{})}
	SetEventHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	var opening []byte
	if options.Retry > 0 { // without an empty line, for the reason of EventComment
		opening = Event{Retry: options.Retry}.appendRetry(nil)
	}
	e.send(opening)
	e.beats.Go(func() { e.beat(ctx) })
	return e
}

// SetEventHeaders sets the headers of a stream of events; OpenEvents does it, too.
func SetEventHeaders(header http.Header) {
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would gather the events
	header.Set("X-Content-Type-Options", "nosniff")
}

// controller reaches the connection of w: the Flush of a wrapper that counts bytes or states hides the error.
func controller(w http.ResponseWriter) *http.ResponseController {
	if wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = wrapped.Unwrap()
	}
	return http.NewResponseController(w)
}

func (e *EventWriter) beat(ctx context.Context) {
	ticker := time.NewTicker(e.options.KeepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.send([]byte(EventComment))
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

	out.Write(e.appendRetry(out.AvailableBuffer()))
	for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
		out.WriteString("data: ")
		out.Write(line)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}

func (e Event) appendRetry(line []byte) []byte {
	if e.Retry <= 0 {
		return line
	}
	line = append(line, "retry: "...)
	line = strconv.AppendInt(line, e.Retry.Milliseconds(), 10)
	return append(line, '\n')
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

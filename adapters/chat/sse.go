package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// eventWriter writes server-sent events (HTML standard, section 9.2) and drops a reader that takes too long.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	every   time.Duration
	stop    func() // ends the stream

	mu     sync.Mutex
	gone   bool
	closed chan struct{}
	beats  sync.WaitGroup
}

func newEventWriter(w http.ResponseWriter, options Options, stop func()) *eventWriter {
	return &eventWriter{
		w: w, control: http.NewResponseController(w), timeout: options.WriteTimeout, every: options.KeepAlive, stop: stop,
		closed: make(chan struct{}),
	}
}

// open sends the headers and begins to keep the connection alive.
func (e *eventWriter) open(ctx context.Context) {
	header := e.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would gather the events
	header.Set("X-Content-Type-Options", "nosniff")
	e.w.WriteHeader(http.StatusOK)
	e.send(nil)
	e.beats.Go(func() { e.beat(ctx) })
}

func (e *eventWriter) beat(ctx context.Context) {
	ticker := time.NewTicker(e.every)
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

// write sends events; the last of them carries the id, if there is one. It says whether the reader is still there.
func (e *eventWriter) write(id string, events ...event) bool {
	var out bytes.Buffer
	for i, one := range events {
		if i == len(events)-1 && id != "" {
			out.WriteString("id: " + id + "\n")
		}
		if one.name != "" {
			out.WriteString("event: " + one.name + "\n")
		}
		out.WriteString("data: ")
		out.Write(encode(one.data))
		out.WriteString("\n\n")
	}
	if out.Len() == 0 {
		return true
	}
	return e.send(out.Bytes())
}

// raw is data that is written as it is.
type raw string

func encode(data any) []byte {
	if text, is := data.(raw); is {
		return []byte(text)
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // a value of ours that cannot be encoded
	}
	return body
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
	close(e.closed)
	e.beats.Wait()
}

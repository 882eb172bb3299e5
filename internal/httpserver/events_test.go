package httpserver_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/httpserver"
	"inbox/internal/httpserver/httpservertest"
)

// pipeListener hands out the server's ends of pipes: connections without buffers, on the clock of a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(t *testing.T) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	l.conns <- server
	if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	return client
}

// readUntil reads until the text was seen, or the connection ends.
func readUntil(conn net.Conn, text string) string {
	var seen strings.Builder
	piece := make([]byte, 512)
	for !strings.Contains(seen.String(), text) {
		n, err := conn.Read(piece)
		seen.Write(piece[:n])
		if err != nil {
			break
		}
	}
	return seen.String()
}

// TestSlowReadersAreDropped has two readers: one never reads. It is dropped after the timeout, and not a moment of the other
// one's is lost.
func TestSlowReadersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		dropped := make(chan time.Duration, 2)
		began := time.Now()
		options := httpserver.EventOptions{KeepAlive: time.Minute, WriteTimeout: timeout, Dropped: func() { dropped <- time.Since(began) }}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, stop := context.WithCancel(r.Context())
			defer stop()
			out := httpserver.OpenEvents(ctx, w, options, stop)
			defer out.Close()
			for out.Write(httpserver.Event{Name: "item", ID: "7", Data: []byte("one\ntwo")}) {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return
				}
			}
		})}
		listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
		go func() { _ = server.Serve(listener) }()
		slow := listener.dial(t)
		defer func() { _ = slow.Close() }()
		quick := listener.dial(t)
		for i := range 12 { // past the moment in which the slow one is dropped
			if got := readUntil(quick, "id: 7\nevent: item\ndata: one\ndata: two\n\n"); !strings.Contains(got, "data: two") {
				t.Fatalf("event %d is %q", i, got)
			}
			if waited := time.Since(began); waited > time.Duration(i)*time.Second {
				t.Errorf("event %d came after %v: somebody else's reader delayed it", i, waited)
			}
		}
		if after := <-dropped; after != timeout {
			t.Errorf("the slow reader was dropped after %v, want %v", after, timeout)
		}
		_ = quick.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

func TestQuietStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := httpserver.EventOptions{KeepAlive: 15 * time.Second, WriteTimeout: time.Second}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := httpserver.OpenEvents(r.Context(), w, options, func() {})
			defer out.Close()
			<-r.Context().Done()
		})}
		listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
		go func() { _ = server.Serve(listener) }()
		conn := listener.dial(t)
		began := time.Now()
		head := readUntil(conn, httpserver.EventComment)
		if !strings.Contains(head, "Content-Type: text/event-stream") || !strings.Contains(head, "Cache-Control: no-store") {
			t.Errorf("the stream begins with %q", head)
		}
		if waited := time.Since(began); waited != 15*time.Second {
			t.Errorf("the first sign of life came after %v", waited)
		}
		_ = conn.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// TestSilenceIsNoEvent: with 40 seconds of silence in it, a stream has the same events for every decoder, also where the
// first line is a wait and the events have ids.
func TestSilenceIsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newRecorded()
		options := httpserver.EventOptions{KeepAlive: 15 * time.Second, WriteTimeout: time.Second, Retry: 5 * time.Second}
		out := httpserver.OpenEvents(t.Context(), recorded, options, func() {})
		<-time.After(40 * time.Second)
		out.Write(httpserver.Event{Name: "delta", ID: "1", Data: []byte(`{"text":"one"}`)})
		<-time.After(40 * time.Second)
		out.Write(httpserver.Event{ID: "2", Data: []byte(`{"text":"two"}`)}, httpserver.StoppingEvent())
		<-time.After(40 * time.Second)
		out.Close()

		stream := recorded.body.String()
		httpservertest.Check(t, stream, 3)
		if beats := strings.Count(stream, httpserver.EventComment); beats != 8 || !strings.HasPrefix(stream, "retry: 5000\n:") {
			t.Errorf("%d comments in\n%s", beats, stream)
		}
	})
}

func TestEventsHaveOneForm(t *testing.T) {
	for want, event := range map[string]httpserver.Event{
		"data: x\n\n":                      {Data: []byte("x")},
		"id: 1\nevent: a\ndata: {}\n\n":    {Name: "a", ID: "1", Data: []byte("{}")},
		"event: a\ndata: x\n\n":            {Name: "a", ID: "1\ndata: forged", Data: []byte("x")},
		"data: first\ndata: b\n\n":         {Data: []byte("first\nb")},
		"event: a\nretry: 90\ndata: x\n\n": {Name: "a", Data: []byte("x"), Retry: 90 * time.Millisecond},
		"event: empty\ndata: \n\n":         {Name: "empty"},
		"id: \"\u00e9\ndata: \u2028x\n\n":  {ID: "\"\u00e9", Data: []byte("\u2028x")},
	} {
		recorded := newRecorded()
		out := httpserver.OpenEvents(t.Context(), recorded, httpserver.EventOptions{KeepAlive: time.Hour, WriteTimeout: time.Hour}, func() {})
		if !out.Write(event) {
			t.Error("the reader is gone")
		}
		out.Close()
		if got := recorded.body.String(); got != want {
			t.Errorf("written as %q, want %q", got, want)
		}
	}
}

// recorded is a response that is only looked at.
type recorded struct {
	body   bytes.Buffer
	header http.Header
}

func newRecorded() *recorded                       { return &recorded{header: http.Header{}} }
func (r *recorded) Header() http.Header            { return r.header }
func (r *recorded) WriteHeader(int)                {}
func (r *recorded) Write(text []byte) (int, error) { return r.body.Write(text) }
func (r *recorded) Flush()                         {}

package chat

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a connection that nobody reads: writes fail at their deadline.
type stuck struct {
	*httptest.ResponseRecorder
	writes   int
	deadline time.Duration
}

func (s *stuck) Write(content []byte) (int, error) {
	if s.writes++; s.writes > 2 {
		return 0, errors.New("i/o timeout")
	}
	return s.ResponseRecorder.Write(content)
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.deadline = time.Until(at)
	return nil
}

func TestSlowReadersAreDropped(t *testing.T) {
	synctest.Test(t, slowReadersAreDropped)
}

func slowReadersAreDropped(t *testing.T) {
	connection := &stuck{ResponseRecorder: httptest.NewRecorder()}
	stopped := 0
	out := openEvents(t.Context(), connection, Options{WriteTimeout: 7 * time.Second, KeepAlive: time.Hour}, func() { stopped++ })
	if !out.write("t.1", event{"delta", ChatText{"a"}}, event{"delta", ChatText{"b"}}) {
		t.Error("a reader that reads was dropped")
	}
	if want := "event: delta\ndata: {\"text\":\"a\"}\n\nid: t.1\nevent: delta\ndata: {\"text\":\"b\"}\n\n"; connection.Body.String() != want {
		t.Errorf("written %q", connection.Body.String())
	}
	for range 3 {
		if out.write("t.2", event{data: raw("[DONE]")}) {
			t.Error("somebody who reads nothing stays")
		}
	}
	out.out.Close()
	if stopped != 1 || connection.writes != 3 || connection.deadline != 7*time.Second {
		t.Errorf("stopped %d times after %d writes with %s", stopped, connection.writes, connection.deadline)
	}
	if connection.Code != http.StatusOK || connection.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", connection.Code, connection.Header())
	}
}

func TestQuietStreamsStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := httptest.NewRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		out := openEvents(ctx, connection, Options{WriteTimeout: time.Second, KeepAlive: 15 * time.Second}, cancel)
		<-time.After(31 * time.Second)
		synctest.Wait()
		out.out.Close()
		cancel()
		if beats := strings.Count(connection.Body.String(), ": still here"); beats != 2 {
			t.Errorf("%d signs of life in 31 seconds", beats)
		}
	})
}

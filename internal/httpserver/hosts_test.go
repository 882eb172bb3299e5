package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"inbox/internal/await"
)

func TestHostsHaveTheirOwnRoutes(t *testing.T) {
	top := newServer(t, Options{Routes: []Route{{"GET", "/", say("top")}, {"GET", "/top", say("alone")}}})
	other := newServer(t, Options{Routes: []Route{{"GET", "/", say("other")}}})
	top.Host(other, "Other.example", "www.other.example")

	for host, want := range map[string]string{
		"other.example": "other", "OTHER.example": "other", "other.example:8443": "other", "other.example.": "other", "www.other.example": "other",
		"top.example": "top", "x.other.example": "top", "": "top", "[::1]:80": "top", "other.example:x:y": "top",
	} {
		request := httptest.NewRequest("GET", "/", nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		top.Handler().ServeHTTP(recorder, request)
		if got := recorder.Body.String(); got != want {
			t.Errorf("%q got %q, want %q", host, got, want)
		}
	}

	request := httptest.NewRequest("GET", "/top", nil)
	request.Host = "other.example"
	recorder := httptest.NewRecorder()
	top.Handler().ServeHTTP(recorder, request)
	if recorder.Code != http.StatusNotFound {
		t.Errorf("a route of one host at another: %d", recorder.Code)
	}
}

// TestHostsStopTogether: streams of every host hear of the stop, and requests under way are waited for.
func TestHostsStopTogether(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-Stopping(r.Context())
		_, _ = io.WriteString(w, "the end")
		close(ended)
	})
	top := newServer(t, Options{Listen: "127.0.0.1:0"})
	other := newServer(t, Options{Routes: []Route{{"GET", "/stream", stream}}})
	top.Host(other, "other.example")
	if err := top.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- top.Run(ctx) }()

	answered := make(chan string, 1)
	go func() {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+top.Addr().String()+"/stream", nil)
		request.Host = net.JoinHostPort("other.example", "80")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()

	wait := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(await.Patience):
			t.Fatalf("waited %s for %s", await.Patience, what)
		}
	}
	wait("the stream", entered)
	stop()
	wait("the end of the stream", ended)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := <-answered; got != "the end" {
		t.Errorf("the stream said %q", got)
	}
	if status := ask(other.Handler(), "GET", "/readyz").Code; status != http.StatusServiceUnavailable {
		t.Errorf("the other host says %d to /readyz after the stop", status)
	}
}

func TestNamedKnowsItsHosts(t *testing.T) {
	for host, named := range map[string]bool{
		"agents.example": true, "AGENTS.example.": true, "agents.example:443": true, "127.0.0.1:80": true, "[::1]": true, "[fd00::1]:8080": true, "localhost": true, "a.localhost:1": true, "inbox": true, "": true,
		"other.example": false, "agents.example.other.example": false, "sub.agents.example": false, "127.0.0.1.other.example": false, "localhost.other.example:80": false, "0x7f.1": false,
	} {
		request := httptest.NewRequest("GET", "/metrics", nil)
		request.Host = host
		if err := Named(request, "agents.example"); (err == nil) != named {
			t.Errorf("%q: %v", host, err)
		}
	}
}

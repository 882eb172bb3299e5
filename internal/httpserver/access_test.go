package httpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

func TestWriteFault(t *testing.T) {
	tests := []struct {
		err        error
		status     int
		body       string
		retryAfter string
	}{
		{fault.InField("parts", "must not be empty"), 400, `{"code":"malformed","message":"must not be empty","field":"parts","documentation":"/docs/reference/errors#malformed"}`, ""},
		{fault.New(fault.TooLarge, "over 1 MiB"), 413, `{"code":"too_large","message":"over 1 MiB","documentation":"/docs/reference/errors#too_large"}`, ""},
		{fault.New(fault.Unauthenticated, "no signature"), 401, `{"code":"unauthenticated","message":"no signature","documentation":"/docs/reference/errors#unauthenticated"}`, ""},
		{fault.New(fault.Forbidden, "blocked"), 403, `{"code":"forbidden","message":"blocked","documentation":"/docs/reference/errors#forbidden"}`, ""},
		{fault.New(fault.NotFound, "no such agent"), 404, `{"code":"not_found","message":"no such agent","documentation":"/docs/reference/errors#not_found"}`, ""},
		{fault.New(fault.Gone, "removed"), 410, `{"code":"gone","message":"removed","documentation":"/docs/reference/errors#gone"}`, ""},
		{fault.New(fault.Conflict, "already answered"), 409, `{"code":"conflict","message":"already answered","documentation":"/docs/reference/errors#conflict"}`, ""},
		{fault.New(fault.Unsupported, "want JSON"), 415, `{"code":"unsupported","message":"want JSON","documentation":"/docs/reference/errors#unsupported"}`, ""},
		{&fault.Fault{Kind: fault.RateLimited, Public: "slow down", RetryAfter: 1500 * time.Millisecond}, 429, `{"code":"rate_limited","message":"slow down","documentation":"/docs/reference/errors#rate_limited"}`, "2"},
		{fault.Wrap(fault.Unavailable, "store is down", errors.New("secret host")), 503, `{"code":"unavailable","message":"store is down","documentation":"/docs/reference/errors#unavailable"}`, "5"},
		{errors.New("secret"), 500, `{"code":"internal","message":"internal error","documentation":"/docs/reference/errors#internal"}`, ""},
		{fmt.Errorf("read body: %w", &http.MaxBytesError{Limit: 10}), 413, `{"code":"too_large","message":"the request body is over 10 bytes","documentation":"/docs/reference/errors#too_large"}`, ""},
		{fmt.Errorf("accept: %w", fault.New(fault.NotFound, "no such task")), 404, `{"code":"not_found","message":"no such task","documentation":"/docs/reference/errors#not_found"}`, ""},
	}
	for _, test := range tests {
		t.Run(test.err.Error(), func(t *testing.T) {
			recorder := httptest.NewRecorder()
			WriteFault(recorder, test.err)
			if got := recorder.Body.String(); recorder.Code != test.status || got != `{"error":`+test.body+"}\n" {
				t.Errorf("%d %s, want %d %s", recorder.Code, got, test.status, test.body)
			}
			if got := recorder.Header().Get("Retry-After"); got != test.retryAfter {
				t.Errorf("Retry-After %q, want %q", got, test.retryAfter)
			}
		})
	}
}

func TestEveryKindHasItsOwnStatus(t *testing.T) {
	seen := map[int]fault.Kind{}
	for _, kind := range []fault.Kind{
		fault.Malformed, fault.TooLarge, fault.Unauthenticated, fault.Forbidden, fault.NotFound, fault.Gone,
		fault.Conflict, fault.RateLimited, fault.Unsupported, fault.Unavailable, fault.Internal,
	} {
		if other, ok := seen[Status(kind)]; ok {
			t.Errorf("%s and %s share %d", kind, other, Status(kind))
		}
		seen[Status(kind)] = kind
	}
}

func logged(t *testing.T) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	logger, err := telemetry.NewLogger(&out, "debug", "text")
	if err != nil {
		t.Fatal(err)
	}
	return logger, &out
}

func TestPanicIsAnsweredAndLoggedOnce(t *testing.T) {
	logger, out := logged(t)
	server := newServer(t, Options{Logger: logger, Routes: []Route{
		{"GET", "/boom/{token}", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret detail") })},
	}})
	got := ask(server.Handler(), "GET", "/boom/capability")
	if got.Code != 500 || strings.Contains(got.Body.String(), "secret") {
		t.Errorf("%d %s", got.Code, got.Body.String())
	}
	if lines := strings.Count(out.String(), "level=ERROR"); lines != 1 || !strings.Contains(out.String(), "secret detail") {
		t.Errorf("%d error lines:\n%s", lines, out.String())
	}
	if text := out.String(); !strings.Contains(text, "route=/boom/{token}") || strings.Contains(text, "capability") {
		t.Errorf("the log has the path, which may be a secret, or no route:\n%s", text)
	}
	if id := got.Header().Get("X-Request-Id"); id == "" || !strings.Contains(out.String(), "request="+id) {
		t.Errorf("the log does not name the request %q:\n%s", id, out.String())
	}
}

func TestPanicAfterTheAnswerBeganCutsTheConnection(t *testing.T) {
	logger, _ := logged(t)
	server := newServer(t, Options{Logger: logger, Routes: []Route{
		{"GET", "/half", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half"))
			panic("late")
		})},
	}})
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // recover returns the value itself
			t.Errorf("panic %v, want http.ErrAbortHandler", cause)
		}
	}()
	ask(server.Handler(), "GET", "/half")
}

func TestInternalErrorIsLoggedWithTheRequest(t *testing.T) {
	logger, out := logged(t)
	server := newServer(t, Options{Logger: logger, Routes: []Route{
		{"GET", "/x/{token}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { WriteFault(w, errors.New("disk on fire")) })},
	}})
	got := ask(server.Handler(), "GET", "/x/capability")
	if text := out.String(); !strings.Contains(text, "route=/x/{token}") || strings.Contains(text, "capability") {
		t.Errorf("the log has the path, which may be a secret, or no route:\n%s", text)
	}
	if got.Code != 500 || strings.Count(out.String(), "disk on fire") != 1 || !strings.Contains(out.String(), got.Header().Get("X-Request-Id")) {
		t.Errorf("%d, log:\n%s", got.Code, out.String())
	}
}

func TestBodyLimit(t *testing.T) {
	server := newServer(t, Options{MaxBodyBytes: 10, Routes: []Route{
		{"POST", "/in", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				WriteFault(w, err)
			}
		})},
	}})
	for body, want := range map[string]int{"0123456789": 200, "0123456789a": 413} {
		recorder := httptest.NewRecorder()
		server.Handler().ServeHTTP(recorder, httptest.NewRequest("POST", "/in", strings.NewReader(body)))
		if recorder.Code != want {
			t.Errorf("%d bytes: %d, want %d", len(body), recorder.Code, want)
		}
	}
}

func TestClientIP(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	tests := []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"direct", "192.0.2.1:1234", nil, "192.0.2.1"},
		{"untrusted peer's claim is ignored", "192.0.2.1:1234", []string{"198.51.100.7"}, "192.0.2.1"},
		{"trusted proxy", "10.0.0.1:1234", []string{"198.51.100.7"}, "198.51.100.7"},
		{"the client's own claim is not believed", "10.0.0.1:1", []string{"1.2.3.4, 198.51.100.7"}, "198.51.100.7"},
		{"two trusted proxies", "10.0.0.1:1", []string{"198.51.100.7, 10.9.9.9"}, "198.51.100.7"},
		{"several headers", "10.0.0.1:1", []string{"198.51.100.7", "10.9.9.9"}, "198.51.100.7"},
		{"all trusted", "10.0.0.1:1", []string{"10.3.3.3, 10.9.9.9"}, "10.3.3.3"},
		{"not an address", "10.0.0.1:1", []string{"198.51.100.7, nonsense"}, "10.0.0.1"},
		{"empty", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"with a port", "10.0.0.1:1", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"mapped peer", "[::ffff:10.0.0.1]:1", []string{"2001:db8::1"}, "2001:db8::1"},
		{"v6 proxy", "[fd00::1]:1", []string{"[2001:db8::1]:5"}, "2001:db8::1"},
		{"unix socket", "@", nil, "invalid IP"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got netip.Addr
			server := newServer(t, Options{TrustedProxies: trusted, Routes: []Route{
				{"GET", "/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = ClientIP(r) })},
			}})
			request := httptest.NewRequest("GET", "/", nil)
			request.RemoteAddr = test.peer
			request.Header["X-Forwarded-For"] = test.forwarded
			server.Handler().ServeHTTP(httptest.NewRecorder(), request)
			if got.String() != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func FuzzClientIP(f *testing.F) {
	f.Add("10.0.0.1:1", "198.51.100.7, 10.9.9.9")
	f.Add("[::1%lo]:1", "::ffff:1.2.3.4, [::1]:80,,")
	trusted := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	f.Fuzz(func(t *testing.T, peer, forwarded string) {
		request := httptest.NewRequest("GET", "/", nil)
		request.RemoteAddr = peer
		request.Header.Set("X-Forwarded-For", forwarded)
		ctx := context.WithValue(request.Context(), requestKey{}, &known{access: &access{networks: Networks{Trusted: trusted}}})
		if got := ClientIP(request.WithContext(ctx)); got.Is4In6() || got.Zone() != "" {
			t.Errorf("%s is not in its plain form", got)
		}
	})
}

// series counts the label combinations of the request histogram.
func series() int {
	metrics := make(chan prometheus.Metric, 1000)
	requestSeconds.Collect(metrics)
	return len(metrics)
}

func TestMetricsByPatternAndOnlyInside(t *testing.T) {
	server := newServer(t, Options{Metrics: Inside, Routes: []Route{{"GET", "/pattern/{name}", say("x")}}})
	requestSeconds.Reset()
	before := series()
	for _, path := range []string{"/pattern/a", "/pattern/b", "/pattern/c"} {
		ask(server.Handler(), "GET", path)
	}
	if added := series() - before; added != 1 {
		t.Errorf("three paths of one pattern made %d series", added)
	}
	for peer, want := range map[string]int{"127.0.0.1:1": 200, "10.1.2.3:1": 403, "[::1]:1": 200, "198.51.100.7:1": 403} {
		request := httptest.NewRequest("GET", "/metrics", nil)
		request.RemoteAddr = peer
		recorder := httptest.NewRecorder()
		server.Handler().ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("metrics for %s: %d, want %d", peer, recorder.Code, want)
		}
	}
	behindProxy := httptest.NewRequest("GET", "/metrics", nil)
	behindProxy.RemoteAddr = "127.0.0.1:1"
	behindProxy.Header.Set("X-Forwarded-For", "198.51.100.7")
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, behindProxy)
	if recorder.Code != 403 {
		t.Errorf("metrics through an undeclared proxy: %d", recorder.Code)
	}
}

// BenchmarkOverhead is the cost of all layers around a handler that does nothing; the goal is 5 µs.
func BenchmarkOverhead(b *testing.B) {
	body := []byte(`{"type":"Create"}`)
	done := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	server := newServer(b, Options{Routes: []Route{{"POST", "/agents/{agent}/inbox", done}}})
	run := func(handler http.Handler) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request, _ := http.NewRequest("POST", "/agents/echo/inbox", bytes.NewReader(body))
				request.RemoteAddr = "192.0.2.1:1"
				handler.ServeHTTP(&nowhere{header: http.Header{}}, request)
			}
		}
	}
	b.Run("bare", run(done))
	b.Run("server", run(server.Handler()))
}

// nowhere is a response writer with a connection's deadlines.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header             { return n.header }
func (n *nowhere) Write(p []byte) (int, error)     { return len(p), nil }
func (n *nowhere) WriteHeader(int)                 {}
func (n *nowhere) SetReadDeadline(time.Time) error { return nil }

// TestAccessLogIsAChoiceAndShowsNoPath: a path may hold a token that opens what it names.
func TestAccessLogIsAChoiceAndShowsNoPath(t *testing.T) {
	routes := []Route{{http.MethodGet, "/policy/{token}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short"))
	})}}
	for _, chosen := range []bool{true, false} {
		t.Run(fmt.Sprint(chosen), func(t *testing.T) {
			var log bytes.Buffer
			logger, err := telemetry.NewLogger(&log, "info", "text")
			if err != nil {
				t.Fatal(err)
			}
			server := newServer(t, Options{Routes: routes, Logger: logger, LogRequests: chosen})
			request := httptest.NewRequest(http.MethodGet, "/policy/s3cret?word=s3cret", nil)
			request.RemoteAddr = "203.0.113.7:999"
			server.access.ServeHTTP(httptest.NewRecorder(), request)
			got := log.String()
			if !chosen {
				if got != "" {
					t.Errorf("nobody asked for %q", got)
				}
				return
			}
			for _, want := range []string{"msg=request", "method=GET", "route=/policy/{token}", "status=418", "bytes=5", "ms=", "client=203.0.113.7", "request="} {
				if !strings.Contains(got, want) {
					t.Errorf("%q has no %s", got, want)
				}
			}
			if strings.Contains(got, "s3cret") || strings.Count(got, "\n") != 1 {
				t.Errorf("log %q", got)
			}
		})
	}
}

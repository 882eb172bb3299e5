package httpserver

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/admission"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

var (
	// route: pattern of the route, "none" where none matched; method: a standard method or "other"; class: 1xx … 5xx
	requestSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "inbox_http_request_seconds", Help: "Time to answer an HTTP request, by route pattern.",
		Buckets: telemetry.NetworkSeconds,
	}, []string{"route", "method", "class"})
	inFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_http_requests_in_flight", Help: "HTTP requests that are being answered.",
	})
	forwards = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_http_untrusted_forwards_total", Help: "Requests with X-Forwarded-For from an address that is no trusted proxy: a proxy that the settings do not name, or a client that makes it up.",
	})
	panics = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_http_panics_total", Help: "Handlers that panicked; each is a defect.",
	})
)

// access is the one layer around the router: request id, limits, recovery, metrics, log. It is one handler instead of
// a chain because every signed delivery passes it.
type access struct {
	next     http.Handler
	logger   *slog.Logger
	logsAll  bool // one line for each request
	maxBody  int64
	maxTime  time.Duration    // to read a body
	bodies   *admission.Bytes // of requests under way
	networks Networks
	draining <-chan struct{} // closed when connections must end with their answer
	stopping <-chan struct{}
	hold     func(*http.Request) (context.Context, func()) // see Options
	running  sync.RWMutex                                  // read-locked by each request under way
}

type requestKey struct{}

// known is what the layer knows about a request, for ClientIP, RequestID and Stopping.
type known struct {
	id     string
	access *access
	body   *meteredBody // nil = the request has none
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.running.RLock()
	defer a.running.RUnlock()
	started := time.Now()
	id := nextRequestID()
	request := &known{id: id, access: a}
	ctx, release := r.Context(), func() {}
	if a.hold != nil {
		ctx, release = a.hold(r)
	}
	defer release()
	recorder := &recorder{ResponseWriter: w, ctx: ctx}
	r = r.WithContext(telemetry.WithRequest(context.WithValue(ctx, requestKey{}, request), id))
	w.Header().Set("X-Request-Id", id)

	select {
	case <-a.draining:
		w.Header().Set("Connection", "close") // HTTP/2 says GOAWAY instead
	default:
	}

	request.body = a.limitBody(w, r)
	recorder.body = request.body
	inFlight.Inc()
	if a.networks.untrustedForward(r) {
		forwards.Inc()
	}
	defer a.finish(recorder, r, started)
	a.next.ServeHTTP(recorder, r)
}

// finish runs in every case, also when the handler panicked.
func (a *access) finish(w *recorder, r *http.Request, started time.Time) {
	cause := recover()
	abort := false
	if cause != nil {
		abort = a.recovered(w, r, cause)
	}
	if w.status == 0 && !abort {
		w.denied()
	}

	w.body.free()
	took := time.Since(started)
	inFlight.Dec()
	requestSeconds.WithLabelValues(w.route(), method(r.Method), class(w.code())).Observe(took.Seconds())
	a.log(w, r, took)

	if abort {
		panic(http.ErrAbortHandler)
	}
}

// idle returns a channel that is closed when no request is under way; nothing may be accepted any more.
func (a *access) idle() <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		a.running.Lock()
		defer a.running.Unlock()
	}()
	return idle
}

// recovered answers 500 where nothing was written yet; otherwise the connection has to be cut.
func (a *access) recovered(w *recorder, r *http.Request, cause any) (abort bool) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}

	panics.Inc()
	a.logger.ErrorContext(r.Context(), "handler panicked", "method", method(r.Method), "route", w.route(),
		"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))

	if w.status != 0 {
		return true
	}

	WriteFault(w, fault.New(fault.Internal, "internal error"))
	w.failure = nil // it is in the log already
	return false
}

func (a *access) log(w *recorder, r *http.Request, took time.Duration) {
	ctx := r.Context()
	if w.failure != nil {
		a.logger.ErrorContext(ctx, "request failed", "method", method(r.Method), "route", w.route(), "error", w.failure)
	}
	level := slog.LevelDebug
	if a.logsAll {
		level = slog.LevelInfo
	}
	if a.logger.Enabled(ctx, level) { // the pattern, not the path: in some of them is a token that opens what it names
		a.logger.LogAttrs(ctx, level, "request", slog.String("method", method(r.Method)), slog.String("route", w.route()),
			slog.Int("status", w.code()), slog.Int64("bytes", w.bytes), slog.Int64("ms", took.Milliseconds()),
			slog.String("client", ClientIP(r).String()))
	}
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	ctx     context.Context //nolint:containedctx // of the request; see denied
	pattern string
	status  int
	bytes   int64
	failure error
	body    *meteredBody
	counted string // RateLimit as the flood limit wrote it

	refusing bool // the refusal of an ended credential is being written
}

// WriteHeader remembers the final status; informational ones pass.
func (w *recorder) WriteHeader(status int) {
	if w.denied() {
		return
	}
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		w.completeRefusal(status)
		w.body.free() // an answer that has begun needs the question no more
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts what left.
func (w *recorder) Write(content []byte) (int, error) {
	if w.denied() {
		return 0, context.Cause(w.ctx)
	}
	if w.status == 0 {
		w.status = http.StatusOK
		w.body.free()
	}
	n, err := w.ResponseWriter.Write(content)
	w.bytes += int64(n)
	return n, err
}

// denied reports whether the credential of the request opens nothing any more. An answer that has not begun is then a refusal; the rest
// of one that has begun does not leave.
func (w *recorder) denied() bool {
	if w.refusing || w.ctx.Err() == nil || !fault.Is(context.Cause(w.ctx), fault.Unauthenticated) {
		return false
	}

	if w.status == 0 {
		w.refusing = true
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		WriteFault(w, context.Cause(w.ctx))
		w.refusing = false
	}
	return true
}

// Flush serves streams that ask for an http.Flusher.
func (w *recorder) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) code() int {
	if w.status == 0 {
		return http.StatusOK // net/http answers 200 for a handler that wrote nothing
	}
	return w.status
}

func (w *recorder) route() string {
	if w.pattern == "" {
		return "none"
	}
	return w.pattern
}

func class(status int) string {
	switch status / 100 {
	case 1:
		return "1xx"
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	}
	return "5xx"
}

// method keeps strangers from making label values.
func method(name string) string {
	for _, standard := range methods {
		if name == standard {
			return standard
		}
	}
	return "other"
}

var (
	processID      = base32.HexEncoding.EncodeToString([]byte(rand.Text()))[:8]
	requestCounter atomic.Uint64
)

// nextRequestID is unique in the process and very likely between processes; it is no secret.
func nextRequestID() string {
	return processID + "-" + strconv.FormatUint(requestCounter.Add(1), 36)
}

// Stopping returns a channel that is closed when the server begins to stop: streams end themselves then, so that they
// do not use up the time that other requests have. Outside of a Server it is nil, which never becomes ready.
func Stopping(ctx context.Context) <-chan struct{} {
	if found, ok := ctx.Value(requestKey{}).(*known); ok {
		return found.access.stopping
	}
	return nil
}

// WhileServing returns a context that ends with ctx, or when the server begins to stop.
func WhileServing(ctx context.Context) (context.Context, context.CancelFunc) {
	return Until(ctx, Stopping(ctx))
}

// Until returns a context that ends with ctx, or when stopping is closed; nil never is.
func Until(ctx context.Context, stopping <-chan struct{}) (context.Context, context.CancelFunc) {
	serving, cancel := context.WithCancel(ctx)
	if stopping == nil {
		return serving, cancel
	}

	go func() {
		select {
		case <-stopping:
			cancel()
		case <-serving.Done():
		}
	}()
	return serving, cancel
}

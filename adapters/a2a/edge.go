package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/boundedjson"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/telemetry"
	"inbox/internal/uniquejson"
	"inbox/internal/webtoken"
	"inbox/normalized"
	"inbox/policypart"
)

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_requests_total",
	Help: "Requests at the A2A edge, by operation (none when it was refused before) and reason of the error (OK without).",
}, []string{"operation", "reason"})

// quiet takes what the SDK logs, which is that clients left; our own failures are logged here.
var quiet = slog.New(slog.DiscardHandler)

// call is one authenticated request on its way through the SDK's binding to our handler.
type call struct {
	agent      exchange.AgentProfile
	sender     normalized.Sender
	caller     caller // what the token is good for
	address    string // of the request as the caller sees it, without query
	owner      owner
	trace      exchange.Trace // to which the caller says that the request belongs
	original   []byte         // the body as received
	limit      int64          // bytes of the largest request by gRPC
	id         json.RawMessage
	rest       bool                   // HTTP+JSON; false = JSON-RPC or gRPC
	old        bool                   // the request is one of 0.3
	card       json.RawMessage        // the result instead of what the binding of 0.3 makes of it; nil = what that makes
	plainFiles bool                   // files by HTTP+JSON and gRPC of 0.3 are not in base64
	bareScopes bool                   // the caller reads scopes in cards as bareScopes says
	toolEvents bool                   // the peer reads calls of tools, and the agent shows them
	awaited    bool                   // the caller waits for the end of the turn, or reads its stream
	own        bool                   // it is answered in the protocol's own media type
	events     bool                   // a refusal is the one event of a stream; see readsEvents
	leave      func()                 // ends the count among the requests of the caller; nil = it is not counted
	stopping   <-chan struct{}        // closed when the gRPC server begins to stop; nil = asked of the HTTP server
	reached    atomic.Pointer[string] // operation of the handler; errors before it are the binding's
	problem    atomic.Pointer[problem]
	sentBytes  atomic.Int64 // of files in an answer by gRPC
}

// maxGRPCFiles bounds the bytes of the files in an answer by gRPC: libraries refuse to read a message over 4 MiB unless they are told
// otherwise.
const maxGRPCFiles = 3 << 20

// takes reports whether a file of so many bytes may be in the answer itself.
func (c *call) takes(size int64) bool {
	return c.stopping == nil || c.sentBytes.Add(size) <= maxGRPCFiles
}

// operation names the handler that was reached; empty before.
func (c *call) operation() string {
	if reached := c.reached.Load(); reached != nil {
		return *reached
	}
	return ""
}

type callKey struct{}

func callOf(ctx context.Context) (*call, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	return c, ok
}

// edge does what comes before any protocol: agent, token, size of the body, extensions, and afterwards the log.
func (a *Adapter) edge(rest bool, serve func(http.ResponseWriter, *http.Request, *call)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions { // browsers ask without a token
			a.origins.Preflight(w, r, methodsOf(rest))
			return
		}
		a.origins.Allow(w, r)

		c := &call{
			rest: rest, address: a.base + r.URL.EscapedPath(), bareScopes: bareScopes(r.Header), events: !rest && readsEvents(r.Header, ""),
		}
		out := newAnswer(w, c, *a.options)
		defer func() {
			a.finish(recover(), r, out)
			c.left()
		}()

		if p := a.admit(r, c, out); p != nil {
			c.problem.Store(p)
			return
		}

		r = r.WithContext(c.within(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(c.original))
		serve(out, r, c)
	})
}

// methodsOf are the methods of a binding.
func methodsOf(rest bool) string {
	if rest {
		return "GET, POST, DELETE"
	}
	return http.MethodPost
}

// originsOf lets pages of the origins call agents. What they may send and read is what clients of the protocol do.
func originsOf(allowed []string) *httpserver.Origins {
	return &httpserver.Origins{
		Allowed: allowed,
		Headers: "Authorization, Content-Type, Accept, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID, DPoP, traceparent",
		Exposed: "A2A-Extensions, X-A2A-Extensions, WWW-Authenticate, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id",
	}
}

// admit finds the agent and the caller and reads the body. Nothing is parsed before the caller is known.
func (a *Adapter) admit(r *http.Request, c *call, out *answer) *problem {
	if p := a.identify(r, httpserver.Param(r, "agent"), c); p != nil {
		return p
	}
	c.noteExtensions(r.Header)
	c.echoExtensions(r.Header, out.Header())
	return c.read(r, a.maxRequest(c))
}

// maxRequest is the largest request of a caller, in bytes: less where only the caller itself vouches for it.
func (a *Adapter) maxRequest(c *call) int64 {
	if c.caller.stranger {
		return min(maxBodyBytes, a.options.MaxRequestBytes)
	}
	return a.options.MaxRequestBytes
}

// identify finds the agent of the name and the caller behind the headers of a request.
func (a *Adapter) identify(r *http.Request, name string, c *call) *problem {
	agent, known := a.options.Directory.Agent(name)
	if !known {
		return &problem{sentinel: a2a.ErrInvalidRequest, message: "no such agent here", http: http.StatusNotFound}
	}

	c.agent = agent
	found, err := a.verify(r, agent, c.address)
	if err != nil {
		return a.refuseCaller(r, agent, err)
	}

	c.caller, c.sender = found, found.sender
	c.trace = exchange.Trace{Parent: r.Header.Get(telemetry.TraceparentHeader), Decided: !found.stranger}
	c.owner = owner{agent: agent.Name, caller: c.sender.Carrier()}
	return a.admitted(c)
}

// admitted counts the request among those of the caller, which may be too many.
func (a *Adapter) admitted(c *call) *problem {
	if c.leave = a.limiter.enter(c.caller.limited); c.leave != nil {
		return nil
	}
	return problemOf(&fault.Fault{
		Kind: fault.RateLimited, Public: "too many of your requests are under way at the same time", RetryAfter: time.Second,
	})
}

// left ends the count of a call.
func (c *call) left() {
	if c.leave != nil {
		c.leave()
	}
}

var callersLimited = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_a2a_crowded_total", Help: "Requests refused because too many of the same caller were under way.",
})

const defaultCallerConcurrency = 2000

// callerLimiter counts the requests of each caller that are under way on this node: streams and blocking sends stay for long, and
// each holds a connection and its buffers.
type callerLimiter struct {
	most int
	mu   sync.Mutex
	open map[string]int
}

func newCallerLimiter(most int) *callerLimiter {
	return &callerLimiter{most: most, open: map[string]int{}}
}

// enter counts a request until leave is called; nil = there are too many.
func (c *callerLimiter) enter(name string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name] >= c.most {
		callersLimited.Inc()
		return nil
	}
	c.open[name]++
	return func() { c.leave(name) }
}

func (c *callerLimiter) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name]--; c.open[name] == 0 {
		delete(c.open, name)
	}
}

// limitedAs is who counts as one: all agents of a peer's server together, because it makes as many of them as it likes.
func limitedAs(principal string, claims webtoken.Claims) string {
	if claims.Peer == (identity.Address{}) {
		return principal
	}
	return "peer\n" + claims.Peer.Domain
}

// supportedExtensions are those that a peer may activate.
var supportedExtensions = map[string]bool{
	policypart.Extension: true, identity.EvidenceExtension: true, oldEvidenceExtension: true, identity.CredentialExtension: true,
}

// echoExtensions tells the peer which of its extensions are active. The header may be a comma list; 0.3 wrote it
// with X-.
func (c *call) echoExtensions(in, out http.Header) {
	for _, name := range []string{a2a.SvcParamExtensions, "X-" + a2a.SvcParamExtensions} {
		var active []string
		for uri := range strings.SplitSeq(strings.Join(in.Values(name), ","), ",") {
			if uri = strings.TrimSpace(uri); supportedExtensions[uri] || uri == ToolEventsExtension && c.toolEvents {
				active = append(active, uri)
			}
		}
		if len(active) > 0 {
			out.Set(name, strings.Join(active, ", "))
		}
	}
}

// read takes the whole body: it is the original that is stored with the message. Who calls is known already.
func (c *call) read(r *http.Request, limit int64) *problem {
	httpserver.Proven(r)
	httpserver.LargerBody(r, limit)
	bounds, unread := requestBounds(), r.Body
	if jsonBody(r) == nil { // anything else is refused for its type
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, bounds), r.Body}
	}

	body, err := httpserver.ReadBody(r, limit)
	if err == nil {
		err = bounds.Close()
	}

	if p := outOfBounds(err); p != nil {
		_, _ = io.CopyN(io.Discard, unread, limit) // see refuseBody
		return p
	}

	switch {
	case fault.Is(err, fault.TooLarge):
		return refuseBody(r, limit)
	case fault.Is(err, fault.Unavailable):
		return problemOf(err)
	case err != nil:
		return &problem{sentinel: a2a.ErrInvalidRequest, message: "the body could not be read", http: http.StatusBadRequest}
	}

	c.original = body
	if name, found := uniquejson.Duplicate(body, requestNames); found && jsonBody(r) == nil {
		return newProblem(a2a.ErrInvalidRequest, fmt.Sprintf("%q names a member that its object has already, in the same or another spelling; send it once", clip.Bytes(name, maxShownName)))
	}
	return nil
}

// requestNames are the names of members that mean the same to us, to the SDK and to a reader of the stored original, so that none of them
// acts on another value than the others.
var requestNames = uniquejson.Names{Folded: maxRequestDepth, Free: []string{"metadata", "data"}}

const maxShownName = 100 // bytes of a name in an error

// Bounds of a request's structure, counted while it is read: what a decoder makes of a document costs by its values and, for
// the parts that are read again, by its depth.
const (
	maxRequestDepth  = 64      // that of the message contract
	maxRequestValues = 100_000 // members and items together
)

func requestBounds() *boundedjson.Counter {
	return boundedjson.NewCounter(boundedjson.Limits{Depth: maxRequestDepth, Values: maxRequestValues})
}

// jsonBody checks the media type; a request without one is taken as JSON.
func jsonBody(r *http.Request) *problem {
	declared := r.Header.Get("Content-Type")
	if declared == "" {
		return nil
	}

	mediaType, _, err := mime.ParseMediaType(declared)
	if err == nil && (mediaType == "application/json" || mediaType == "application/a2a+json") {
		return nil
	}

	return &problem{
		sentinel: a2a.ErrUnsupportedContentType, message: "Content-Type must be application/json",
		http: http.StatusUnsupportedMediaType,
	}
}

// outOfBounds is the problem of a document that the counter refused; nil for another error.
func outOfBounds(err error) *problem {
	broken, is := errors.AsType[*boundedjson.Error](err)
	switch {
	case !is:
		return nil
	case broken.Reason == boundedjson.NotUTF8:
		return newProblem(a2a.ErrParseError, "the body is not valid UTF-8")
	}
	return newProblem(a2a.ErrInvalidParams, "the request "+broken.Reason+": "+strconv.Itoa(broken.Limit)+" are allowed")
}

// refuseBody reads on in a body that is too large and keeps nothing: most clients write to the end before they read the
// answer, and would see a broken connection instead of it. The server's bounds of size and time hold here, too.
func refuseBody(r *http.Request, limit int64) *problem {
	httpserver.DiscardBody(r, limit)
	return tooLarge(limit)
}

func tooLarge(limit int64) *problem {
	message := fmt.Sprintf("the request is over %d MiB", limit>>20)
	return &problem{sentinel: a2a.ErrInvalidRequest, message: message, http: http.StatusRequestEntityTooLarge}
}

// within returns the context in which the handlers find the call.
func (c *call) within(ctx context.Context) context.Context {
	ctx = telemetry.With(ctx, "agent", c.agent.Name, "principal", c.owner.caller)
	return log.AttachLogger(context.WithValue(ctx, callKey{}, c), quiet)
}

// finish writes what is still unwritten and logs failures of ours. A panic becomes a neutral error: the SDK's
// bindings are set up to let panics through to here.
func (a *Adapter) finish(panicked any, r *http.Request, out *answer) {
	if panicked != nil {
		out.call.problem.Store(defect(panicked))
	}
	out.finish(panicked != nil)
	a.count(r.Context(), out.call)
}

// defect is the problem of a handler that panicked.
func defect(panicked any) *problem {
	return &problem{
		sentinel: a2a.ErrInternalError, message: "internal error", http: http.StatusInternalServerError,
		cause: fmt.Errorf("panic: %v\n%s", panicked, debug.Stack()),
	}
}

// count writes the metric of a call that is over and logs what failed on our side.
func (a *Adapter) count(ctx context.Context, c *call) {
	reason := "OK"
	if p := c.problem.Load(); p != nil {
		reason = a2a.ErrorReason(p.sentinel)
		a.logProblem(ctx, p)
	}
	requests.WithLabelValues(orNone(c.operation()), reason).Inc()
}

func orNone(operation string) string {
	if operation == "" {
		return "none"
	}
	return operation
}

func (a *Adapter) logProblem(ctx context.Context, p *problem) {
	if p.cause == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(p.cause, webtoken.ErrLater) { // another server does not answer, or strangers ask for too much
		return
	}
	switch fault.Of(p.cause).Kind {
	case fault.Internal, fault.Unavailable:
		a.log.ErrorContext(ctx, "a2a request failed", "reason", a2a.ErrorReason(p.sentinel), "error", p.cause)
	}
}

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
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/telemetry"
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
	agent    exchange.AgentProfile
	token    exchange.Token
	owner    owner
	original []byte // the body as received
	id       json.RawMessage
	rest     bool                   // HTTP+JSON; false = JSON-RPC
	reached  atomic.Pointer[string] // operation of the handler; errors before it are the binding's
	problem  atomic.Pointer[problem]
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
		c := &call{rest: rest}
		out := newAnswer(w, c, a.options)
		defer func() { a.finish(recover(), r, out) }()
		if p := a.admit(r, c, out); p != nil {
			c.problem.Store(p)
			return
		}
		ctx := telemetry.With(r.Context(), "agent", c.agent.Name, "principal", c.owner.principal)
		ctx = log.AttachLogger(context.WithValue(ctx, callKey{}, c), quiet)
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(c.original))
		serve(out, r, c)
	})
}

// admit finds the agent and the caller and reads the body. Nothing is parsed before the caller is known.
func (a *Adapter) admit(r *http.Request, c *call, out *answer) *problem {
	agent, known := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return &problem{sentinel: a2a.ErrInvalidRequest, message: "no such agent here", http: http.StatusNotFound}
	}
	c.agent = agent
	token, err := a.verify(r, agent)
	if err != nil {
		p := problemOf(err)
		challenge(out.Header(), p)
		return p
	}
	c.token = token
	c.owner = owner{agent: agent.Name, principal: a.sender(token, agent).Principal()}
	echoExtensions(r.Header, out.Header())
	return c.read(r)
}

// challenge says how to authenticate (RFC 6750, section 3).
func challenge(header http.Header, p *problem) {
	switch p.http {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", `Bearer realm="inbox", error="invalid_token"`)
	case http.StatusForbidden:
		header.Set("WWW-Authenticate", `Bearer realm="inbox", error="insufficient_scope"`)
	}
}

// read takes the whole body: it is the original that is stored with the message.
func (c *call) read(r *http.Request) *problem {
	if r.ContentLength > maxBodyBytes {
		return tooLarge()
	}
	body := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	if _, err := body.ReadFrom(io.LimitReader(r.Body, maxBodyBytes+1)); err != nil {
		var limit *http.MaxBytesError
		if errors.As(err, &limit) {
			return tooLarge()
		}
		return &problem{sentinel: a2a.ErrInvalidRequest, message: "the body could not be read", http: http.StatusBadRequest}
	}
	if body.Len() > maxBodyBytes {
		return tooLarge()
	}
	c.original = body.Bytes()
	return nil
}

func tooLarge() *problem {
	message := fmt.Sprintf("the request is over %d MiB", maxBodyBytes>>20)
	return &problem{sentinel: a2a.ErrInvalidRequest, message: message, http: http.StatusRequestEntityTooLarge}
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

// envelope is what the edge reads of a JSON-RPC request to choose the version.
type envelope struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
}

func (c *call) envelope() (envelope, *problem) {
	var request envelope
	err := json.Unmarshal(c.original, &request)
	switch {
	case err == nil && validID(request.ID):
		c.id = request.ID
		return request, nil
	case err == nil:
		return request, newProblem(a2a.ErrInvalidRequest, "id must be a string or a number")
	case !json.Valid(c.original):
		return request, newProblem(a2a.ErrParseError, "the body is not JSON")
	}
	return request, newProblem(a2a.ErrInvalidRequest, "the body must be one JSON-RPC request; batches are not taken")
}

func validID(id json.RawMessage) bool {
	if len(id) == 0 {
		return true
	}
	switch id[0] {
	case '"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'n':
		return true
	}
	return false
}

// serveRPC hands a JSON-RPC request to the binding of its version.
func (a *Adapter) serveRPC(w http.ResponseWriter, r *http.Request, c *call) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		c.problem.Store(&problem{
			sentinel: a2a.ErrInvalidRequest, message: "JSON-RPC is sent by POST", http: http.StatusMethodNotAllowed,
		})
		return
	}
	request, p := c.envelope()
	if wrong := jsonBody(r); wrong != nil {
		p = wrong
	}
	if p != nil {
		c.problem.Store(p)
		return
	}
	switch version, p := rpcVersion(r, request.Method); {
	case p != nil:
		c.problem.Store(p)
	case version == version03:
		a.rpc03.ServeHTTP(w, r)
	default:
		a.rpc1.ServeHTTP(w, r)
	}
}

const (
	version1  = "1.0"
	version03 = "0.3"
)

// requested gives Major.Minor of the A2A-Version header or query parameter; empty when there is none.
func requested(r *http.Request) string {
	version := r.Header.Get(a2a.SvcParamVersion)
	if version == "" && r.URL.RawQuery != "" {
		version = r.URL.Query().Get(a2a.SvcParamVersion)
	}
	pieces := strings.SplitN(strings.TrimSpace(version), ".", 3)
	if len(pieces) == 3 {
		return pieces[0] + "." + pieces[1]
	}
	return strings.Join(pieces, ".")
}

// rpcVersion follows an explicit version. Without one the method name decides: 0.3 clients never send the header and
// their methods have a slash; the strict reading (empty means 0.3) would lock out 1.0 clients that forget it.
func rpcVersion(r *http.Request, method string) (string, *problem) {
	switch version := requested(r); version {
	case version1, version03:
		return version, nil
	case "":
		if strings.Contains(method, "/") {
			return version03, nil
		}
		return version1, nil
	}
	return "", unsupportedVersion()
}

func unsupportedVersion() *problem {
	return newProblem(a2a.ErrVersionNotSupported, "A2A-Version must be 1.0 or 0.3")
}

func (a *Adapter) serveREST(w http.ResponseWriter, r *http.Request, c *call) {
	a.rest(w, r, c, a.rest1, version1, "")
}

func (a *Adapter) serveREST03(w http.ResponseWriter, r *http.Request, c *call) {
	a.rest(w, r, c, a.rest03, version03, "/v1")
}

// rest hands a request to an HTTP+JSON binding, which knows the path below the interface's URL only.
func (a *Adapter) rest(w http.ResponseWriter, r *http.Request, c *call, binding http.Handler, version, prefix string) {
	if asked := requested(r); asked != "" && asked != version {
		c.problem.Store(unsupportedVersion())
		return
	}
	if len(c.original) > 0 {
		if p := jsonBody(r); p != nil {
			c.problem.Store(p)
			return
		}
	}
	address := *r.URL
	address.Path = prefix + path.Clean("/"+httpserver.Param(r, "*"))
	address.RawPath = ""
	r.URL = &address
	binding.ServeHTTP(w, r)
}

// supportedExtensions are those that a peer may activate.
var supportedExtensions = map[string]bool{policypart.Extension: true}

// echoExtensions tells the peer which of its extensions are active. The header may be a comma list; 0.3 wrote it
// with X-.
func echoExtensions(in, out http.Header) {
	for _, name := range []string{a2a.SvcParamExtensions, "X-" + a2a.SvcParamExtensions} {
		var active []string
		for uri := range strings.SplitSeq(strings.Join(in.Values(name), ","), ",") {
			if uri = strings.TrimSpace(uri); supportedExtensions[uri] {
				active = append(active, uri)
			}
		}
		if len(active) > 0 {
			out.Set(name, strings.Join(active, ", "))
		}
	}
}

// finish writes what is still unwritten and logs failures of ours. A panic becomes a neutral error: the SDK's
// bindings are set up to let panics through to here.
func (a *Adapter) finish(panicked any, r *http.Request, out *answer) {
	if panicked != nil {
		out.call.problem.Store(&problem{
			sentinel: a2a.ErrInternalError, message: "internal error", http: http.StatusInternalServerError,
			cause: fmt.Errorf("panic: %v\n%s", panicked, debug.Stack()),
		})
	}
	out.finish(panicked != nil)
	reason := "OK"
	if p := out.call.problem.Load(); p != nil {
		reason = a2a.ErrorReason(p.sentinel)
		a.logProblem(r.Context(), p)
	}
	requests.WithLabelValues(orNone(out.call.operation()), reason).Inc()
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
	switch fault.Of(p.cause).Kind {
	case fault.Internal, fault.Unavailable:
		a.log.ErrorContext(ctx, "a2a request failed", "reason", a2a.ErrorReason(p.sentinel), "error", p.cause)
	}
}

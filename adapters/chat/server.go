package chat

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_chat_requests_total",
	Help: "Requests at the chat edge, by surface (jsonrpc, rest, openai) and outcome (done, refused, failed).",
}, []string{"surface", "outcome"})

// handler answers a request; an error that it gives was not answered yet.
type handler func(w http.ResponseWriter, r *http.Request) error

// edge does what all endpoints have in common: CORS, count and errors.
func (a *Adapter) edge(surface string, serve handler) http.Handler {
	write := httpserver.WriteFault
	if surface == surfaceOpenAI {
		write = writeOpenAIError
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.allowOrigin(w, r)
		err := serve(w, r)
		requests.WithLabelValues(surface, outcomeOf(err)).Inc()
		if err == nil || r.Context().Err() != nil { // or nobody reads
			return
		}
		challenge(w.Header(), err)
		if surface == surfaceOpenAI && outcomeOf(err) == "failed" {
			a.log.ErrorContext(r.Context(), "a chat request failed", "error", err)
		}
		write(w, err)
	})
}

// challenge says how to authenticate (RFC 9110, section 11.6.1).
func challenge(header http.Header, err error) {
	if refused, is := errors.AsType[*unidentified](err); is {
		header["Www-Authenticate"] = refused.challenges
		return
	}
	if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) {
		header.Set("WWW-Authenticate", `Bearer realm="inbox"`)
	}
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case fault.Of(err).Kind == fault.Internal, fault.Is(err, fault.Unavailable):
		return "failed"
	}
	return "refused"
}

// readBody takes the whole body: it is the original that is stored with the message. Pages of strangers can make a
// browser send other media types without asking us first (Fetch standard, CORS-safelisted request headers), so only JSON
// is read.
func (a *Adapter) readBody(r *http.Request, who caller) ([]byte, error) {
	return a.readBodyUpTo(r, who, contract.MaxInputBytes)
}

// maxGuestBytes bounds the request of a caller who proves nothing.
const maxGuestBytes = 256 << 10

func (a *Adapter) readBodyUpTo(r *http.Request, who caller, limit int64) ([]byte, error) {
	switch {
	case who.token != nil:
		httpserver.Proven(r)
	case who.guest() && !slices.ContainsFunc(a.options.Directory.Agents(), func(agent exchange.AgentProfile) bool { return a.options.Guests(agent.Name) }):
		callers.WithLabelValues("closed").Inc()
		return nil, fault.New(fault.Forbidden, "no agent here takes messages without a bearer token")
	case who.guest():
		limit = min(limit, maxGuestBytes)
	}
	if declared := r.Header.Get("Content-Type"); declared != "" {
		if mediaType, _, err := mime.ParseMediaType(declared); err != nil || mediaType != "application/json" {
			return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
		}
	} else if r.Header.Get("Origin") != "" {
		return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
	}
	body, err := httpserver.ReadBody(r, limit)
	if fault.Is(err, fault.TooLarge) {
		return nil, tooLarge(limit)
	}
	return body, err
}

func tooLarge(limit int64) error {
	if limit < 1<<20 {
		return fault.Newf(fault.TooLarge, "the request is over %d KiB, which is the most without a bearer token", limit>>10)
	}
	return fault.Newf(fault.TooLarge, "the request is over %d MiB", limit>>20)
}

const (
	maxAge         = "600" // seconds that browsers keep a preflight
	allowedHeaders = "Authorization, Content-Type, Last-Event-ID, " + sessionHeader
)

// allowOrigin lets pages of the configured origins read the answer. No cookie means anything here, so credentials in the
// sense of CORS are never allowed.
func (a *Adapter) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	switch {
	case slices.Contains(a.options.Origins, "*"):
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(a.options.Origins, origin):
		w.Header().Set("Access-Control-Allow-Origin", origin)
	default:
		return false
	}
	w.Header().Set("Access-Control-Expose-Headers", "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id")
	return true
}

// withPreflight adds the answer to a browser's question before a request from elsewhere, once for each path.
func (a *Adapter) withPreflight(routes []httpserver.Route) []httpserver.Route {
	methods := map[string]string{}
	var patterns []string
	for _, route := range routes {
		if methods[route.Pattern] == "" {
			patterns = append(patterns, route.Pattern)
		} else {
			methods[route.Pattern] += ", "
		}
		methods[route.Pattern] += route.Method
	}
	for _, pattern := range patterns {
		routes = append(routes, httpserver.Route{Method: http.MethodOptions, Pattern: pattern, Handler: a.preflight(methods[pattern])})
	}
	return routes
}

func (a *Adapter) preflight(methods string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Replace(methods, http.MethodGet, "GET, HEAD", 1)+", OPTIONS")
		if a.allowOrigin(w, r) {
			w.Header().Set("Access-Control-Allow-Methods", methods)
			w.Header().Set("Access-Control-Allow-Headers", headersFor(r.Header.Get("Access-Control-Request-Headers")))
			w.Header().Set("Access-Control-Max-Age", maxAge)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// headersFor allows what the page asks for: SDKs add headers of their own to each request, and none of them opens
// anything here.
func headersFor(asked string) string {
	if asked == "" || len(asked) > 1024 {
		return allowedHeaders
	}
	return asked
}

package chat

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_chat_requests_total",
	Help: "Requests at the chat edge, by surface (jsonrpc, rest, openai, operator) and outcome (done, refused, failed).",
}, []string{"surface", "outcome"})

// endpoints does what all operations have in common, whatever their surface: pages from elsewhere, count and errors.
type endpoints struct {
	*site
}

// handler answers a request; an error that it returns was not answered yet.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle makes an operation a handler: its errors are answered in the form of its surface.
func (e *endpoints) handle(surface string, serve handler) http.Handler {
	write := httpserver.WriteFault
	if surface == surfaceOpenAI {
		write = writeOpenAIError
	}

	origins := e.origins()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins.Allow(w, r)
		err := serve(w, r)
		requests.WithLabelValues(surface, outcomeOf(err)).Inc()
		if err == nil || r.Context().Err() != nil { // or the client is gone
			return
		}

		challenge(w.Header(), err)
		if surface == surfaceOpenAI && outcomeOf(err) == "failed" {
			e.options.Logger.ErrorContext(r.Context(), "a chat request failed", "error", err)
		}
		write(w, err)
	})
}

// challenge tells the client how to authenticate (RFC 9110, section 11.6.1).
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

// withPreflight adds the answer to a browser's question before a request from elsewhere, once for each path.
func (e *endpoints) withPreflight(routes []httpserver.Route) []httpserver.Route {
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
		routes = append(routes, httpserver.Route{Method: http.MethodOptions, Pattern: pattern, Handler: e.preflight(methods[pattern])})
	}

	return routes
}

func (e *endpoints) preflight(methods string) http.Handler {
	origins := e.origins()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { origins.Preflight(w, r, methods) })
}

// origins are the pages from elsewhere that may call the chat.
func (e *endpoints) origins() *httpserver.Origins {
	return &httpserver.Origins{
		Allowed: e.options.Origins, Headers: "Authorization, Content-Type, Last-Event-ID, " + sessionHeader,
		Exposed: "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id",
	}
}

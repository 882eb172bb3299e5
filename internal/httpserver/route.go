package httpserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"inbox/internal/fault"
	"inbox/internal/reference"
)

// Route is one entry of the router. Adapters offer routes and never import the router itself.
type Route struct {
	Method  string // HTTP method; empty = any. GET answers HEAD too
	Pattern string // chi form, for example "/agents/{agent}/inbox"; "/*" at the end takes the rest of the path
	Handler http.Handler
}

// Param returns a named piece of the matched pattern, percent-decoded (so it may hold a slash); empty when the pattern
// has no such name or the encoding is broken. The rest taken by "/*" has the name "*".
func Param(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath == "" || !strings.Contains(value, "%") {
		return value
	}
	decoded, err := url.PathUnescape(value)
	if err != nil {
		return ""
	}
	return decoded
}

// Pattern returns the pattern of the route that a request matched; empty outside of the router.
func Pattern(r *http.Request) string {
	if route := chi.RouteContext(r.Context()); route != nil {
		return route.RoutePattern()
	}
	return ""
}

// newRouter puts the routes on a router; the first two routes with the same method and pattern are an error.
func newRouter(routes []Route) (router *chi.Mux, err error) {
	router = chi.NewRouter()
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, ErrorDetail{Code: string(fault.NotFound), Message: "nothing is at this address"})
	})

	router.MethodNotAllowed(methodNotAllowed(router))
	taken := make(map[string]bool, len(routes))
	for _, route := range routes {
		taken[route.Method+" "+route.Pattern] = true
	}

	if len(taken) < len(routes) {
		return nil, fmt.Errorf("route %s is a duplicate", repeated(routes))
	}

	for _, route := range routes {
		if err := mount(router, route, taken); err != nil {
			return nil, err
		}
	}

	return router, nil
}

func repeated(routes []Route) string {
	seen := map[string]bool{}
	for _, route := range routes {
		key := strings.TrimSpace(route.Method + " " + route.Pattern)
		if seen[key] {
			return key
		}
		seen[key] = true
	}
	return ""
}

// mount turns the router's panic about a bad pattern into an error.
func mount(router chi.Router, route Route, taken map[string]bool) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("route %q: %v", route.Method+" "+route.Pattern, cause)
		}
	}()

	handler := &named{pattern: route.Pattern, handler: route.Handler}
	switch route.Method {
	case "":
		router.Handle(route.Pattern, handler)
	case http.MethodGet:
		router.Method(http.MethodGet, route.Pattern, handler)
		if !taken[http.MethodHead+" "+route.Pattern] {
			router.Method(http.MethodHead, route.Pattern, handler)
		}
	default:
		router.Method(route.Method, route.Pattern, handler)
	}

	return nil
}

// named tells the access layer which pattern was matched.
type named struct {
	pattern string
	handler http.Handler
}

func (n *named) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if recorder, ok := w.(*recorder); ok {
		recorder.pattern = n.pattern
	}
	n.handler.ServeHTTP(w, r)
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// methodNotAllowed answers 405 with the methods that the path has (RFC 9110 section 15.5.6).
func methodNotAllowed(router *chi.Mux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.RawPath
		if path == "" {
			path = r.URL.Path
		}

		var allowed []string
		for _, method := range methods {
			if router.Match(chi.NewRouteContext(), method, path) {
				allowed = append(allowed, method)
			}
		}

		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuse(w, r, http.StatusMethodNotAllowed, ErrorDetail{Code: "method_not_allowed", Message: "this address takes " + strings.Join(allowed, ", ")})
	}
}

// apiPrefix is where clients of OpenAI's API send their requests, those to operations that are not here, too.
const apiPrefix = "/v1/"

// apiDetail is an ErrorDetail with the members that such clients read.
type apiDetail struct {
	ErrorDetail
	Type  string  `json:"type"`
	Param *string `json:"param"`
}

// refuse answers a request that no route takes.
func refuse(w http.ResponseWriter, r *http.Request, status int, detail ErrorDetail) {
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		WriteError(w, status, detail)
		return
	}
	detail.Documentation = reference.OfCode(detail.Code)
	WriteJSON(w, status, map[string]apiDetail{"error": {ErrorDetail: detail, Type: "invalid_request_error"}})
}

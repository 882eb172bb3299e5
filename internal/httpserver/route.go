package httpserver

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Route is one entry of the router. Adapters offer routes and never import the router itself.
type Route struct {
	Method  string // HTTP method; empty = any
	Pattern string // chi form, for example "/agents/{agent}/inbox"; "/*" at the end takes the rest of the path
	Handler http.Handler
}

// Param gives a named piece of the matched pattern, percent-decoding as the router left it; empty when the pattern
// has no such name. The rest taken by "/*" has the name "*".
func Param(r *http.Request, name string) string { return chi.URLParam(r, name) }

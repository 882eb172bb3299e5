package httpserver

import (
	"net/http"
	"slices"
	"strings"
)

// Origins are the web origins whose pages may call routes from a browser (CORS, Fetch Standard, section 3.3). It is for routes that
// authenticate by the Authorization header: no cookie means anything there, so credentials in the sense of CORS are never allowed.
type Origins struct {
	Allowed []string // such as https://www.example.com; "*" = all
	Headers string   // that a request may have, where a preflight names none
	Exposed string   // headers of answers that a page may read
}

const (
	preflightMaxAge  = "600" // seconds that browsers keep a preflight
	maxAskedHeaders  = 1024
	anyOrigin        = "*"
	headerAllow      = "Access-Control-Allow-Origin"
	headerRequesting = "Access-Control-Request-Headers"
)

// Allow writes the headers by which a page of an allowed origin may read the answer, and reports whether the origin is one.
func (o *Origins) Allow(w http.ResponseWriter, r *http.Request) bool {
	if len(o.Allowed) == 0 {
		return false
	}

	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	switch {
	case origin == "":
		return false
	case slices.Contains(o.Allowed, anyOrigin):
		header.Set(headerAllow, anyOrigin)
	case slices.Contains(o.Allowed, origin):
		header.Set(headerAllow, origin)
	default:
		return false
	}

	header.Set("Access-Control-Expose-Headers", o.Exposed)
	return true
}

// Preflight answers OPTIONS for a path with the methods, such as "GET, POST", without authentication: browsers send none.
func (o *Origins) Preflight(w http.ResponseWriter, r *http.Request, methods string) {
	header := w.Header()
	header.Set("Allow", strings.Replace(methods, http.MethodGet, "GET, HEAD", 1)+", OPTIONS")
	if o.Allow(w, r) {
		header.Set("Access-Control-Allow-Methods", methods)
		header.Set("Access-Control-Allow-Headers", o.headersFor(r.Header.Get(headerRequesting)))
		header.Set("Access-Control-Max-Age", preflightMaxAge)
	}
	w.WriteHeader(http.StatusNoContent)
}

// headersFor allows what the page names: SDKs add headers of their own to each request, and none of them opens anything here.
func (o *Origins) headersFor(asked string) string {
	if asked == "" || len(asked) > maxAskedHeaders {
		return o.Headers
	}
	return asked
}

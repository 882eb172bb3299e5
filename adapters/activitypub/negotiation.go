package activitypub

import (
	"net/http"
	"strings"
)

// Forms in which a resource can be had.
type form int

const (
	formNone form = iota
	formActivity
	formPage
)

// accepts reads the Accept header: ActivityPub when it is named, else a page for browsers, else ActivityPub for
// whoever takes anything.
func accepts(r *http.Request) form {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	named := func(types ...string) bool {
		for _, one := range types {
			if strings.Contains(accept, one) {
				return true
			}
		}
		return false
	}
	switch {
	case named("application/activity+json", "application/ld+json"):
		return formActivity
	case named("text/html", "application/xhtml+xml", "text/*"):
		return formPage
	case accept == "", named("*/*", "application/*", "application/json"):
		return formActivity
	}
	return formNone
}

func refuseForm(w http.ResponseWriter) {
	w.Header().Set("Vary", "Accept")
	http.Error(w, "this is available as application/activity+json", http.StatusNotAcceptable)
}

package activitypub

import (
	"net/http"
	"strconv"
	"strings"

	"inbox/internal/httpserver"
)

// Forms in which a resource can be had.
type form int

const (
	formNone form = iota
	formActivity
	formPage
)

// Media ranges that ask for a form, in the order in which they count (RFC 9110, section 12.5.1).
var (
	activityRanges = []string{"application/activity+json", "application/ld+json"}
	pageRanges     = []string{"text/html", "application/xhtml+xml", "text/*"}
	anyRanges      = []string{"application/json", "application/*", "*/*"}
)

// accepts reads the Accept header: ActivityPub when it is named and no page is preferred to it, else a page for browsers,
// else ActivityPub for whoever takes anything.
func accepts(r *http.Request) form {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	activity, named := quality(accept, activityRanges)
	page, forPeople := quality(accept, pageRanges)
	anything, open := quality(accept, anyRanges)
	switch {
	case activity > 0 && activity >= page:
		return formActivity
	case page > 0:
		return formPage
	case strings.TrimSpace(accept) == "", anything > 0 && !named:
		return formActivity
	case open && anything > 0 && !forPeople: // anything but ActivityPub
		return formPage
	}
	return formNone
}

// asksForActivity says whether a request names ActivityPub, and does not merely take anything.
func asksForActivity(r *http.Request) bool {
	_, named := quality(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), activityRanges)
	return named && accepts(r) == formActivity
}

// quality gives the highest weight that a header gives to one of the media ranges, and whether it names one. Of the
// parameters the profile of JSON-LD is passed over: there is one form of our documents.
func quality(accept string, ranges []string) (best float64, named bool) {
	for entry := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(entry, ";")
		media = strings.TrimSpace(media)
		for _, one := range ranges {
			if media == one {
				best, named = max(best, weight(parameters)), true
			}
		}
	}
	return best, named
}

// weight reads q; 1 without one, and where it is no number.
func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && strings.TrimSpace(name) == "q" && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}

func refuseForm(w http.ResponseWriter) {
	w.Header().Set("Vary", "Accept")
	http.Error(w, "this is available as application/activity+json", http.StatusNotAcceptable)
}

// AtProfile serves the actor at the address of an agent's page to those who name ActivityPub: people copy that address
// into the search of their server. Everybody else gets the page, with a link to the
// actor.
func (p *profiles) AtProfile(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asksForActivity(r) {
			p.serveActor(w, r)
			return
		}
		w.Header().Add("Vary", "Accept")
		if agent, found := p.options.Directory.Agent(httpserver.Param(r, "agent")); found {
			w.Header().Add("Link", "<"+p.actorIRI(agent.Name)+`>; rel="alternate"; type="`+activityMediaType+`"`)
		}
		page.ServeHTTP(w, r)
	})
}

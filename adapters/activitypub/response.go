package activitypub

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// offerSignatures tells what a signature must cover: with RFC 9421 (section 5.1 there), with which capable peers repeat a
// refused request, and with draft-cavage (section 3.1.1 there), in the header that every 401 must have (RFC 9110, section
// 15.5.2). What has no body has no digest to cover.
func (s *site) offerSignatures(w http.ResponseWriter, r *http.Request) {
	components, headers := `"@method" "@target-uri" "@authority"`, "(request-target) host date"
	if r.Method == http.MethodPost {
		components, headers = components+` "content-digest"`, headers+" digest"
	}
	w.Header().Set("Accept-Signature", "sig1=("+components+");created;keyid")
	w.Header().Set("WWW-Authenticate", `Signature realm="`+s.host+`",headers="`+headers+`"`)
}

var statuses = map[fault.Kind]int{
	fault.Malformed: http.StatusBadRequest, fault.TooLarge: http.StatusRequestEntityTooLarge,
	fault.Unauthenticated: http.StatusUnauthorized, fault.Forbidden: http.StatusForbidden,
	fault.NotFound: http.StatusNotFound, fault.Gone: http.StatusGone, fault.Conflict: http.StatusConflict,
	fault.RateLimited: http.StatusTooManyRequests, fault.Unsupported: http.StatusUnsupportedMediaType,
	fault.Unavailable: http.StatusServiceUnavailable,
}

// leastPause is what a server waits at least before it delivers again: its queue has others to serve.
const leastPause = 5 * time.Second

// refuse writes a fault as status and one line of text. What went wrong inside goes to the log only.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	failure := fault.Of(err)
	status, known := statuses[failure.Kind]
	if !known {
		status = http.StatusInternalServerError
	}
	if status >= http.StatusInternalServerError && failure.RetryAfter == 0 { // with a time it is another server that fails
		slog.ErrorContext(r.Context(), "activitypub request failed", "path", r.URL.Path, "error", err)
	}

	if failure.RetryAfter > 0 && failure.RetryAfter < leastPause {
		patient := *failure
		patient.RetryAfter, failure = leastPause, &patient
	}

	httpserver.SetRetry(w.Header(), failure)
	text := failure.Public
	if failure.Field != "" {
		text = failure.Field + ": " + text
	}

	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, text, status)
}

// unavailable is a failure of our own store; the peer tries again.
func unavailable(cause error) error {
	return fault.Wrap(fault.Unavailable, "try again later", cause)
}

// encodedDocument is an encoded answer, kept while what it was made of stays the same.
type encodedDocument struct {
	of   string // fingerprint of the source
	body []byte
	etag string
}

func newDocument(of string, content any) (encodedDocument, error) {
	body, err := document.Encode(content)
	if err != nil {
		return encodedDocument{}, err
	}
	sum := sha256.Sum256(body)
	return encodedDocument{of, body, `"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}

// writeDocument sends an encoded ActivityPub document, or 304 for a reader that has it. No one keeps it when seconds
// is 0.
func writeDocument(w http.ResponseWriter, r *http.Request, doc encodedDocument, seconds int) {
	header := w.Header()
	header.Set("Cache-Control", "public, max-age="+strconv.Itoa(seconds))
	if seconds == 0 {
		header.Set("Cache-Control", "private, no-store")
	}

	header.Set("Vary", "Accept")
	header.Set("ETag", doc.etag)
	header.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("If-None-Match"), doc.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}

	header.Set("Content-Type", activityMediaType+"; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(doc.body)))
	_, _ = w.Write(doc.body)
}

func (s *site) write(w http.ResponseWriter, r *http.Request, content any) {
	if accepts(r) == formNone {
		refuseForm(w)
		return
	}

	doc, err := newDocument("", content)
	if err != nil {
		refuse(w, r, err)
		return
	}

	seconds := 60
	if s.options.AuthorizedFetch {
		seconds = 0 // what one signer may read is for no shared cache
	}
	writeDocument(w, r, doc, seconds)
}

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
// else ActivityPub for those who take anything.
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

// asksForActivity reports whether a request names ActivityPub, and does not merely take anything.
func asksForActivity(r *http.Request) bool {
	_, named := quality(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), activityRanges)
	return named && accepts(r) == formActivity
}

// quality returns the highest weight that a header has for one of the media ranges, and whether it names one. Of the
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

package activitypub

import (
	"log/slog"
	"net/http"
	"time"

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

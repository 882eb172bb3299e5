package httpserver

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"inbox/internal/fault"
	"inbox/internal/reference"
)

// ErrorBody is the JSON of every error that is not a protocol's own: {"error":{"code","message","field","documentation"}}.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is the inner object of an ErrorBody.
type ErrorDetail struct {
	Code    string `json:"code"`            // fault.Kind
	Message string `json:"message"`         // what was wrong and what to change
	Field   string `json:"field,omitempty"` // the input field at fault

	// Documentation is where the code is explained, a path on this server (RFC 3986, section 4.2). WriteError fills it in.
	Documentation string `json:"documentation,omitempty"`
}

// Status returns the HTTP status of a fault's kind (message contract, section 12; RFC 9110 section 15).
func Status(kind fault.Kind) int {
	switch kind {
	case fault.Malformed:
		return http.StatusBadRequest
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Gone:
		return http.StatusGone
	case fault.Conflict:
		return http.StatusConflict
	case fault.Unsupported:
		return http.StatusUnsupportedMediaType
	case fault.RateLimited:
		return http.StatusTooManyRequests
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	case fault.Internal:
	}
	return http.StatusInternalServerError
}

// defaultRetryAfter is what a peer hears where a 429 or 503 has no better time.
const defaultRetryAfter = 5 * time.Second

// WriteFault answers with the status and the public text of an error. A body over the limit of its reader is
// TooLarge; an error without a fault is Internal and goes to the log, because nothing else has recorded it. For
// Unauthenticated the caller sets WWW-Authenticate before, as its protocol wants it.
func WriteFault(w http.ResponseWriter, err error) {
	f := faultOf(err)
	if f.Kind == fault.Internal {
		report(w, err)
	}
	SetRetry(w.Header(), f)
	WriteError(w, Status(f.Kind), ErrorDetail{Code: string(f.Kind), Message: f.Public, Field: f.Field})
}

// WriteError answers with an error that has a code of its own, and says where that is explained.
func WriteError(w http.ResponseWriter, status int, detail ErrorDetail) {
	detail.Documentation = reference.OfCode(detail.Code)
	WriteJSON(w, status, ErrorBody{detail})
}

// report leaves a defect to the access layer, which knows the request; outside of a Server it logs.
func report(w http.ResponseWriter, err error) {
	if recorder, ok := w.(*recorder); ok {
		recorder.failure = err
		return
	}
	slog.Error("request failed", "error", err)
}

func faultOf(err error) *fault.Fault {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.Newf(fault.TooLarge, "the request body is over %d bytes", tooLarge.Limit)
	}
	return fault.Of(err)
}

// WriteJSON answers with a JSON document that must not be cached or sniffed.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // a type of ours that cannot be encoded; the recovery logs it
	}

	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the peer may be gone; nothing is left to do about it
}

package a2a

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/fault"
	"inbox/internal/reference"
)

// problem is a failed request as the peer will read it, with the private cause for our log. One problem is written
// as a JSON-RPC error, as a REST status or as an event of a stream that has begun.
type problem struct {
	sentinel   error // the SDK's error: it decides code, reason and REST status
	message    string
	field      string        // the member of the request at fault
	http       int           // HTTP status for every binding; 0 = 200 for JSON-RPC, by sentinel for REST
	retryAfter time.Duration // zero = no Retry-After
	refusal    *fault.Fault  // with RateLimited or Unavailable: what the headers tell; nil = nothing
	cause      error

	authenticate []string // challenges of a refusal, for WWW-Authenticate
}

// Error returns the public text.
func (p *problem) Error() string {
	if p.field != "" {
		return p.field + ": " + p.message
	}
	return p.message
}

// Unwrap returns the private cause.
func (p *problem) Unwrap() error { return p.cause }

// code is what a sentinel becomes on the wire (A2A 1.0, section 5.4).
type code struct {
	rpc    int
	http   int
	status string // google.rpc.Code
}

var codes = map[error]code{
	a2a.ErrParseError:                   {-32700, http.StatusBadRequest, "INVALID_ARGUMENT"},
	a2a.ErrInvalidRequest:               {-32600, http.StatusBadRequest, "INVALID_ARGUMENT"},
	a2a.ErrMethodNotFound:               {-32601, http.StatusNotImplemented, "UNIMPLEMENTED"},
	a2a.ErrInvalidParams:                {-32602, http.StatusBadRequest, "INVALID_ARGUMENT"},
	a2a.ErrInternalError:                {-32603, http.StatusInternalServerError, "INTERNAL"},
	a2a.ErrServerError:                  {-32000, http.StatusInternalServerError, "INTERNAL"},
	a2a.ErrTaskNotFound:                 {-32001, http.StatusNotFound, "NOT_FOUND"},
	a2a.ErrTaskNotCancelable:            {-32002, http.StatusBadRequest, "FAILED_PRECONDITION"},
	a2a.ErrPushNotificationNotSupported: {-32003, http.StatusBadRequest, "FAILED_PRECONDITION"},
	a2a.ErrUnsupportedOperation:         {-32004, http.StatusBadRequest, "FAILED_PRECONDITION"},
	a2a.ErrUnsupportedContentType:       {-32005, http.StatusBadRequest, "INVALID_ARGUMENT"},
	a2a.ErrExtendedCardNotConfigured:    {-32007, http.StatusBadRequest, "FAILED_PRECONDITION"},
	a2a.ErrVersionNotSupported:          {-32009, http.StatusBadRequest, "FAILED_PRECONDITION"},
	a2a.ErrUnauthenticated:              {-31401, http.StatusUnauthorized, "UNAUTHENTICATED"},
	a2a.ErrUnauthorized:                 {-31403, http.StatusForbidden, "PERMISSION_DENIED"},
}

func newProblem(sentinel error, message string) *problem {
	return &problem{sentinel: sentinel, message: message}
}

func inField(field, message string) *problem {
	return &problem{sentinel: a2a.ErrInvalidParams, message: message, field: field}
}

// taskNotFound answers for a missing task and for those of another owner alike.
func taskNotFound() *problem { return newProblem(a2a.ErrTaskNotFound, "task not found") }

// problemOf turns any error into what the peer may read.
func problemOf(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{sentinel: a2a.ErrInternalError, message: "the request was given up", cause: err}
	}
	return ofFault(fault.Of(err), err)
}

// ofFault maps each kind to one answer (message contract, section 12).
func ofFault(f *fault.Fault, err error) *problem {
	p := &problem{sentinel: a2a.ErrInternalError, message: f.Public, retryAfter: f.RetryAfter, cause: err}
	switch f.Kind {
	case fault.Malformed, fault.TooLarge:
		p.sentinel, p.field, p.cause = a2a.ErrInvalidParams, requestField(f.Field), nil
	case fault.Unauthenticated:
		p.sentinel, p.http = a2a.ErrUnauthenticated, http.StatusUnauthorized
	case fault.Forbidden:
		p.sentinel, p.http = a2a.ErrUnauthorized, http.StatusForbidden
	case fault.NotFound, fault.Gone:
		p.sentinel = a2a.ErrTaskNotFound
	case fault.Conflict:
		p.sentinel = a2a.ErrInvalidParams
	case fault.RateLimited:
		p.sentinel, p.http, p.refusal = a2a.ErrServerError, http.StatusTooManyRequests, f
	case fault.Unsupported:
		p.sentinel = a2a.ErrUnsupportedOperation
	case fault.Unavailable:
		p.http = http.StatusServiceUnavailable
		p.retryAfter, p.refusal = max(p.retryAfter, time.Second), f
	default:
		p.message = "internal error"
	}

	return p
}

// requestField renames a field of the normalized message to the member of the request that it came from.
func requestField(field string) string {
	head, rest := field, ""
	if cut := strings.IndexAny(field, ".["); cut >= 0 {
		head, rest = field[:cut], field[cut:]
	}
	switch head {
	case "id":
		return "message.messageId" + rest
	case "parts":
		return "message.parts" + strings.Replace(rest, ".bytes_ref", "", 1)
	case "recipient_capabilities":
		return "message.metadata.mentionable" + rest
	}

	return "message"
}

// status is the HTTP status of the problem in a binding.
func (p *problem) status(rest bool) int {
	switch {
	case p.http != 0:
		return p.http
	case rest:
		return codes[p.sentinel].http
	}
	return http.StatusOK
}

const (
	errorInfoType  = "type.googleapis.com/google.rpc.ErrorInfo"
	badRequestType = "type.googleapis.com/google.rpc.BadRequest"
)

type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// explained is the metadata of an error: a path on this server where its reason is explained.
func explained(reason string) map[string]string {
	address := reference.OfCode(reason)
	if address == "" {
		return nil
	}
	return map[string]string{"documentation": address}
}

type badRequest struct {
	Type            string           `json:"@type"`
	FieldViolations []fieldViolation `json:"fieldViolations"`
}

type fieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// details are the typed details of the problem; ErrorInfo is mandatory for A2A errors.
func (p *problem) details() []any {
	reason := a2a.ErrorReason(p.sentinel)
	list := []any{errorInfo{Type: errorInfoType, Reason: reason, Domain: a2a.ProtocolDomain, Metadata: explained(reason)}}
	if p.field != "" {
		list = append(list, badRequest{Type: badRequestType, FieldViolations: []fieldViolation{{p.field, p.message}}})
	}
	return list
}

package policypart

import "net/http"

// Status of the response that carries a part, in the words of the message contract (section 8): the turn waits, or it
// ended without its work.
const (
	ResponseInputRequired = "input_required"
	ResponseFailed        = "failed"
)

// Resumable reports whether the same turn can go on once the demand is met. A refusal that only time lifts is not
// resumable: its asker comes again. An unknown kind is never taken for success and never waited for.
func Resumable(kind string) bool {
	return kind == ConsentRequired || kind == Unauthorized || kind == PaymentRequired
}

// ResponseStatus returns the status of a response with a part of the kind.
func ResponseStatus(kind string) string {
	if Resumable(kind) {
		return ResponseInputRequired
	}
	return ResponseFailed
}

// HTTPStatus returns the status code under which a part of the kind travels over HTTP; an unknown kind is a 403.
func HTTPStatus(kind string) int {
	switch kind {
	case Unauthorized:
		return http.StatusUnauthorized
	case PaymentRequired:
		return http.StatusPaymentRequired
	case TooManyRequests:
		return http.StatusTooManyRequests
	case UnavailableForLegalReasons:
		return http.StatusUnavailableForLegalReasons
	case ServiceUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

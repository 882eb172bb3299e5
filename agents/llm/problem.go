package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"inbox/internal/fault"
)

// problem is the error object of both APIs: {"error": {type, code, message}}; some servers write a text.
type problem struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

func (p problem) kind() string {
	if p.Type != "" {
		return p.Type
	}
	return strings.Trim(string(p.Code), `"`)
}

func readProblem(body []byte) (kind, message string) {
	var document struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &document) != nil {
		return "", string(body)
	}
	if kind, message = readError(document.Error); message != "" {
		return kind, message
	}
	if document.Message != "" {
		return kind, document.Message
	}
	return kind, string(body)
}

func readError(raw json.RawMessage) (kind, message string) {
	var said problem
	if json.Unmarshal(raw, &said) == nil && (said.Message != "" || said.kind() != "") {
		return said.kind(), said.Message
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return "", text
	}
	return "", ""
}

// unsent marks a request that no provider has seen: connecting failed, so asking again does no harm.
func unsent(err error) error {
	if broken, is := errors.AsType[*net.OpError](err); is && broken.Op == "dial" {
		return &unsentError{err}
	}
	return err
}

type unsentError struct{ cause error }

// Error gives the text of the cause.
func (e *unsentError) Error() string { return e.cause.Error() }

// Unwrap gives the cause.
func (e *unsentError) Unwrap() error { return e.cause }

// refusal is what a provider says instead of an assistant turn.
type refusal struct {
	status  int    // of HTTP; 0 = inside a stream
	kind    string // the provider's own word, as in "overloaded_error"
	message string
	repeat  bool // asking again may help
}

// Error says what the provider said and, where it is known, what the operator can change.
func (r *refusal) Error() string {
	var text strings.Builder
	text.WriteString("the model provider answered")
	if r.status != 0 {
		fmt.Fprintf(&text, " %d", r.status)
	}
	if r.kind != "" {
		fmt.Fprintf(&text, " %s", r.kind)
	}
	if r.message != "" {
		fmt.Fprintf(&text, ": %q", r.message)
	}
	text.WriteString(advice[r.status])
	return text.String()
}

var advice = map[int]string{
	http.StatusUnauthorized:          "; check api_key",
	http.StatusForbidden:             "; check what the api_key may use",
	http.StatusPaymentRequired:       "; check the balance of the account",
	http.StatusNotFound:              "; check base_url and model",
	http.StatusRequestEntityTooLarge: "; let the agent's history keep less, or send smaller files",
}

// overlong finds what providers and local servers say about conversations that are longer than the model can read.
var overlong = regexp.MustCompile(`(?i)context[ _]length|context[ _]window|context[ _]size|prompt is too long|input is too long|too many (input )?tokens|exceeds? the (model's )?(maximum|available) context|maximum (input|prompt) length`)

// tooLong says whether an error means that the conversation has to be shorter.
func tooLong(err error) bool {
	said, is := errors.AsType[*refusal](err)
	return is && !said.repeat && (said.status == http.StatusRequestEntityTooLarge || overlong.MatchString(said.kind+" "+said.message))
}

// fault classes the refusal for the engine.
func (r *refusal) fault(retryAfter time.Duration) error {
	switch {
	case !r.repeat:
		return fault.GiveUp(sayRefused, r)
	case r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable || r.status == 529:
		return fault.RetryIn(retryAfter, sayBusy, r)
	}
	return fault.RetryIn(retryAfter, sayUnreachable, r)
}

// repeatable says whether a status is worth another attempt (agent runtime contract, section 9).
func repeatable(response *http.Response) bool {
	if response.Header.Get("X-Should-Retry") == "false" {
		return false
	}
	return response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500
}

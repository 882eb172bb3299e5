package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// What the sender of a message reads when the model fails. The cause, for the operator, says what happened.
const (
	sayUnreachable = "The agent's model cannot be reached right now. Please try again later."
	sayBusy        = "The agent's model is busy right now. Please try again later."
	sayLate        = "The agent's model did not answer in time. Please try again later."
	sayRefused     = "The agent's model could not take this conversation."
	sayUnusable    = "The agent's model gave an answer that could not be used."
)

// maxRetryAfter is the longest pause that a provider can ask for.
const maxRetryAfter = 24 * time.Hour

var errStreamCut = errors.New("the stream of the model provider ended before the answer was complete")

func unusable(cause error) error {
	return fault.GiveUp(sayUnusable, cause).Coded(normalized.FailedInvalidAnswer)
}

// cut classes a stream that broke off. No one knows whether the next one does, so the engine may repeat the turn.
func cut(cause error) error {
	return fault.RetryIn(0, sayUnusable, cause).Coded(normalized.FailedModelUnreachable)
}

// interrupted classes an exchange that ended before the answer was whole. outer is the caller's context, limited ours
// with the limits of time.
func interrupted(outer, limited context.Context, err error) error {
	if outer.Err() != nil {
		return fmt.Errorf("ask model: %w", context.Cause(outer))
	}
	if cause := context.Cause(limited); cause != nil {
		return fault.RetryIn(0, sayLate, cause).Coded(normalized.FailedTimeout)
	}

	switch {
	case errors.Is(err, safehttp.ErrTooLarge):
		return unusable(err)
	case errors.Is(err, safehttp.ErrRefused):
		return fault.GiveUp(sayUnreachable, err).Coded(normalized.FailedModelUnreachable)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return cut(errStreamCut)
	}

	return fault.RetryIn(0, sayUnreachable, upstream.Unconnected(fmt.Errorf("ask model: %w", err))).Coded(normalized.FailedModelUnreachable)
}

// retryAfter reads what the provider asks for: retry-after-ms, or seconds or a date (RFC 9110, section 10.2.3). Zero
// when there is neither.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if millis, err := strconv.ParseUint(header.Get("Retry-After-Ms"), 10, 32); err == nil {
		return min(time.Duration(millis)*time.Millisecond, maxRetryAfter)
	}

	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}

	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), maxRetryAfter))
}

// excerpt makes text of a stranger fit for a log: one line of printable characters, at most 300, without the key.
func excerpt(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, "[key]")
	}

	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text)

	short := []rune(strings.Join(strings.Fields(printable), " "))
	return string(short[:min(len(short), 300)])
}

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

// errUnsent is the cause of an attempt that was not made.
var errUnsent error = &unsentError{errors.New("the model is not asked again")}

type unsentError struct{ cause error }

// Error returns the text of the cause.
func (e *unsentError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
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

// tooLong reports whether an error means that the conversation has to be shorter.
func tooLong(err error) bool {
	said, is := errors.AsType[*refusal](err)
	return is && !said.repeat && (said.status == http.StatusRequestEntityTooLarge || overlong.MatchString(said.kind+" "+said.message))
}

// fault classes the refusal for the engine.
func (r *refusal) fault(retryAfter time.Duration) error {
	switch {
	case !r.repeat:
		return fault.GiveUp(sayRefused, r).Coded(r.code())
	case r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable || r.status == 529:
		return upstream.PutOff(retryAfter, sayBusy, r).Coded(normalized.FailedModelRateLimited)
	}
	return fault.RetryIn(retryAfter, sayUnreachable, r).Coded(normalized.FailedModelUnreachable)
}

// code names the reason of a refusal that does not pass.
func (r *refusal) code() string {
	switch {
	case tooLong(r):
		return normalized.FailedContextTooLong
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, r.status == http.StatusPaymentRequired,
		slices.Contains(accountKinds, r.kind):
		return normalized.FailedModelAuth
	}
	return normalized.FailedModelRejected
}

// accountKinds are what providers call errors of the key or the account, also in a stream or with status 400.
var accountKinds = []string{"authentication_error", "permission_error", "billing_error", "invalid_api_key", "insufficient_quota"}

// repeatable reports whether a status is worth another attempt (agent runtime contract, section 9).
func repeatable(response *http.Response) bool {
	if response.Header.Get("X-Should-Retry") == "false" {
		return false
	}
	return response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500
}

// patientReader fails when one read takes longer than the limit. The clock stands still between reads, because the
// time that the engine needs for a delta is not the provider's.
type patientReader struct {
	source io.Reader
	limit  time.Duration
	giveUp func()
	timer  *time.Timer
	err    error // the last one
}

// Read reads from the source.
func (p *patientReader) Read(into []byte) (int, error) {
	if p.timer == nil {
		p.timer = time.AfterFunc(p.limit, p.giveUp)
	} else {
		p.timer.Reset(p.limit)
	}
	defer p.timer.Stop()
	n, err := p.source.Read(into)
	p.err = err
	return n, err
}

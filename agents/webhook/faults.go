package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// What the sender of a message reads when the webhook fails. The cause, for the operator, says what happened.
const (
	sayUnreachable = "The agent cannot be reached right now. Please try again later."
	sayBusy        = "The agent is busy right now. Please try again later."
	sayLate        = "The agent did not answer in time. Please try again later."
	sayRefused     = "The agent could not take this message."
	sayUnusable    = "The agent gave an answer that could not be used."
)

// maxRetryAfter is the longest pause that a webhook can ask for.
const maxRetryAfter = 24 * time.Hour

// errReading marks a failure to read the answer, as opposed to one to understand it.
var errReading = errors.New("read webhook answer")

func unusable(cause error) error { return fault.GiveUp(sayUnusable, cause) }

// interrupted classes an exchange that ended before the answer was whole. outer is the engine's context, limited
// ours with the limits of time.
func interrupted(outer, limited context.Context, err error) error {
	if outer.Err() != nil {
		return fmt.Errorf("ask webhook: %w", context.Cause(outer))
	}
	if cause := context.Cause(limited); cause != nil {
		return fault.RetryIn(0, sayLate, cause)
	}
	if errors.Is(err, safehttp.ErrTooLarge) {
		return unusable(err)
	}
	if errors.Is(err, safehttp.ErrRefused) {
		return fault.GiveUp(sayUnreachable, err)
	}
	return fault.RetryIn(0, sayUnreachable, fmt.Errorf("ask webhook: %w", err))
}

// refusal classes an answer with another status than 200 and 204. The body goes to the operator only.
func (a *Agent) refusal(response *http.Response, body io.Reader) error {
	start, _ := io.ReadAll(io.LimitReader(body, 512))
	cause := fmt.Errorf("the webhook answered %d: %q", response.StatusCode, excerpt(string(start)))
	switch status := response.StatusCode; {
	case status >= 300 && status < 400:
		return fault.GiveUp(sayUnreachable, fmt.Errorf("%w; redirects to %q are not followed: configure the final address",
			cause, excerpt(response.Header.Get("Location"))))
	case status == http.StatusUnauthorized && a.options.rotates(): // the program is being given the new secret
		return fault.RetryIn(retryAfter(response), sayUnreachable, fmt.Errorf("%w; a secret is being changed: the program knows neither", cause))
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return fault.RetryIn(retryAfter(response), sayBusy, cause)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusInternalServerError,
		status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return fault.RetryIn(retryAfter(response), sayUnreachable, cause)
	case status >= 400 && status < 500:
		return fault.GiveUp(sayRefused, cause)
	default:
		return unusable(fmt.Errorf("%w; want 200 or 204", cause))
	}
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3); zero when there is neither.
func retryAfter(response *http.Response) time.Duration {
	text := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, min(time.Until(at), maxRetryAfter))
}

// excerpt makes text of a stranger fit for a log: one line of printable characters, at most 200.
func excerpt(text string) string {
	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text)
	short := []rune(strings.Join(strings.Fields(printable), " "))
	return string(short[:min(len(short), 200)])
}

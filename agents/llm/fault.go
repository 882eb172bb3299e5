package llm

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

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
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

func unusable(cause error) error { return fault.GiveUp(sayUnusable, cause) }

// cut classes a stream that broke off. Nobody knows whether the next one does, so the engine may repeat the turn.
func cut(cause error) error { return fault.RetryIn(0, sayUnusable, cause) }

// interrupted classes an exchange that ended before the answer was whole. outer is the caller's context, limited ours
// with the limits of time.
func interrupted(outer, limited context.Context, err error) error {
	if outer.Err() != nil {
		return fmt.Errorf("ask model: %w", context.Cause(outer))
	}
	if cause := context.Cause(limited); cause != nil {
		return fault.RetryIn(0, sayLate, cause)
	}
	switch {
	case errors.Is(err, safehttp.ErrTooLarge):
		return unusable(err)
	case errors.Is(err, safehttp.ErrRefused):
		return fault.GiveUp(sayUnreachable, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return cut(errStreamCut)
	}
	return fault.RetryIn(0, sayUnreachable, fmt.Errorf("ask model: %w: %w", upstream.ErrDown, err))
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

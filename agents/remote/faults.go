package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// What the sender of a message reads when the other agent fails. The cause, for the operator, says what happened.
const (
	sayUnreachable = "The agent cannot be reached right now. Please try again later."
	sayBusy        = "The agent is busy right now. Please try again later."
	sayLate        = "The agent did not answer in time. Please try again later."
	sayRefused     = "The agent could not take this message."
	sayUnusable    = "The agent gave an answer that could not be used."
	sayHere        = "The answer of the agent cannot be kept right now."
)

// maxRetryAfter is the longest pause that the other side can ask for.
const maxRetryAfter = 24 * time.Hour

var (
	errStopped   = errors.New("the engine wants no more deltas")
	errTimeLimit = errors.New("the agent did not finish its answer within the time limit")
	errIdle      = errors.New("the agent sent nothing for too long")
	errNoEvent   = errors.New("the stream ended before its first event")
)

// quiet keeps the SDK's own log lines, which quote strangers, out of ours.
var quiet = slog.New(slog.DiscardHandler)

func unusable(cause error) error { return fault.GiveUp(sayUnusable, cause) }

func notKept(cause error) error { return fault.RetryIn(0, sayHere, cause) }

// unreachable classes trouble of the network.
func unreachable(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*fault.Fault](err); ok {
		return known
	}
	switch {
	case ctx.Err() != nil: // a limit of ours; run tells the end of the engine's context apart
		return fault.RetryIn(0, sayLate, context.Cause(ctx))
	case errors.Is(err, safehttp.ErrRefused), errors.Is(err, safehttp.ErrRedirects):
		return fault.GiveUp(sayUnreachable, err)
	case errors.Is(err, safehttp.ErrTooLarge):
		return unusable(err)
	}
	return fault.RetryIn(0, sayUnreachable, err)
}

// classed says what a status other than 200 means for the turn.
func classed(status int, after time.Duration, cause error) error {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return fault.RetryIn(after, sayBusy, cause)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusInternalServerError,
		status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return fault.RetryIn(after, sayUnreachable, cause)
	case status >= 300 && status < 400:
		return fault.GiveUp(sayUnreachable, fmt.Errorf("%w; redirects are not followed", cause))
	case status >= 400 && status < 500:
		return fault.GiveUp(sayRefused, cause)
	}
	return unusable(cause)
}

// failure classes a failed request to the other agent.
func failure(ctx context.Context, seen *sighting, err error) error {
	if _, ok := errors.AsType[*fault.Fault](err); ok || ctx.Err() != nil || seen.status == 0 {
		return unreachable(ctx, err)
	}
	switch {
	case seen.status != http.StatusOK:
		return classed(seen.status, seen.retryAfter, fmt.Errorf("the agent answered %d %q: %w", seen.status, seen.said, err))
	case errors.Is(err, a2a.ErrInternalError), errors.Is(err, a2a.ErrServerError):
		return fault.RetryIn(0, sayUnreachable, err)
	case errors.Is(seen.cut, safehttp.ErrTooLarge):
		return unusable(seen.cut)
	case seen.cut != nil, errors.Is(err, errNoEvent):
		return fault.RetryIn(0, sayUnreachable, fmt.Errorf("the answer was cut: %w", errors.Join(err, seen.cut)))
	case protocolError(err):
		return fault.GiveUp(sayRefused, err)
	}
	return unusable(err)
}

// protocolError says whether the other agent said no in the words of the protocol.
func protocolError(err error) bool {
	_, ok := errors.AsType[*a2a.Error](err)
	return ok
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3); zero when there is neither.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, min(time.Until(at), maxRetryAfter))
}

// excerpt makes text of a stranger fit for a log or a sentence: one line of printable characters, at most 200.
func excerpt(text string) string {
	if len(text) > 4<<10 {
		text = text[:4<<10]
	}
	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, strings.ToValidUTF8(text, ""))
	short := []rune(strings.Join(strings.Fields(printable), " "))
	return string(short[:min(len(short), 200)])
}

func readStart(body io.Reader, limit int64) []byte {
	start, _ := io.ReadAll(io.LimitReader(body, limit)) // what came says enough
	return start
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// sayHere is what the sender of a message reads when the failure is ours. Other words are those of upstream.
const sayHere = "The answer of the agent cannot be kept right now."

var (
	errStopped   = errors.New("the engine wants no more deltas")
	errTimeLimit = errors.New("the agent did not finish its answer within the time limit")
	errIdle      = errors.New("the agent sent nothing for too long")
	errNoEvent   = errors.New("the stream ended before its first event")
	errTooLong   = errors.New("the answer is longer than what is read of one")
)

// quiet keeps the SDK's own log lines, which quote strangers, out of ours.
var quiet = slog.New(slog.DiscardHandler)

func notKept(cause error) error { return fault.RetryIn(0, sayHere, cause) }

// failure classes a failed request to the other agent.
func failure(ctx context.Context, seen *sighting, err error) error {
	if _, ok := errors.AsType[*fault.Fault](err); ok || ctx.Err() != nil || seen.status == 0 {
		return upstream.Interrupted(ctx, err)
	}

	switch {
	case seen.status != http.StatusOK:
		return upstream.Status(seen.status, seen.retryAfter, fmt.Errorf("the agent answered %d %q: %w", seen.status, seen.said, err))
	case errors.Is(err, a2a.ErrInternalError), errors.Is(err, a2a.ErrServerError):
		return upstream.Down(0, err)
	case errors.Is(seen.cut, safehttp.ErrTooLarge):
		return upstream.NotUsable(errTooLong)
	case seen.cut != nil, errors.Is(err, errNoEvent):
		return upstream.Down(0, fmt.Errorf("the answer was cut: %w", errors.Join(err, seen.cut)))
	case protocolError(err):
		return upstream.NotTaken(err)
	}

	return upstream.NotUsable(err)
}

// protocolError reports whether the other agent said no in the words of the protocol.
func protocolError(err error) bool {
	_, ok := errors.AsType[*a2a.Error](err)
	return ok
}

func excerpt(text string) string { return upstream.Excerpt(text, 200) }

func readStart(body io.Reader, limit int64) []byte {
	start, _ := io.ReadAll(io.LimitReader(body, limit)) // what came says enough
	return start
}

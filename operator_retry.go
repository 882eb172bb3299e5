package inbox

import (
	"context"
	"time"

	"inbox/console"
	"inbox/exchange"
)

// SinceTime reads an age such as 2h, or a time (RFC 3339), as the operator API does.
func SinceTime(text string, now time.Time) (time.Time, error) { return console.SinceTime(text, now) }

// RetryTurn runs a failed message again; the answer is a further reply to its sender. fault.NotFound without such a message,
// fault.Conflict when it has not failed, or when it is a task whose end its sender has fetched.
func (o *Operator) RetryTurn(ctx context.Context, turnID string) error {
	return o.turns().Retry(ctx, turnID, localOperator)
}

// RetryFailed runs all failed messages again that the filter selects, and says what becomes of each. With dryRun it changes
// nothing. A second call finds nothing to do.
func (o *Operator) RetryFailed(ctx context.Context, filter exchange.RetryFilter, dryRun bool) (exchange.RetryResult, error) {
	return o.turns().RetryFailed(ctx, filter, localOperator, dryRun)
}

// Package clock waits without outliving its caller.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx is done; its error is then that of ctx. A wait of zero or less is over at once.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

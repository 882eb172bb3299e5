package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/clock"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := clock.Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(begun))
		}

		begun = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := clock.Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}

		if err := clock.Sleep(t.Context(), -time.Second); err != nil {
			t.Error(err)
		}
		if err := clock.Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after the context ended", err)
		}
	})
}

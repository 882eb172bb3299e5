package semaphore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/semaphore"
)

func TestKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keyed semaphore.Keyed
		first, err := keyed.Acquire(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		other, err := keyed.Acquire(t.Context(), "b", 1)
		if err != nil {
			t.Fatal(err)
		}

		busy := errors.New("busy")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, busy)
		defer cancel()
		if _, err := keyed.Acquire(ctx, "a", 1); !errors.Is(err, busy) {
			t.Errorf("a second caller of one slot: %v", err)
		}

		got := make(chan func())
		go func() {
			release, err := keyed.Acquire(t.Context(), "a", 1)
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
		synctest.Wait()
		if keyed.InUse() != 2 {
			t.Errorf("%d keys in use", keyed.InUse())
		}

		first()
		(<-got)()
		other()
		if keyed.InUse() != 0 {
			t.Errorf("%d keys left over", keyed.InUse())
		}
	})
}

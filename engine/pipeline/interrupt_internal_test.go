package pipeline

import (
	"context"
	"errors"
	"testing"

	"inbox/internal/queue"
)

// TestRunWithoutLeaseEnds: a run that finds its lease over ends, and neither ends nor repeats its job, which another worker may have.
func TestRunWithoutLeaseEnds(t *testing.T) {
	for name, holds := range map[string]func() bool{"held": func() bool { return true }, "lost": func() bool { return false }, "not known": nil} {
		ctx, stop := context.WithCancelCause(t.Context())
		record := &runRecord{stop: stop, lease: holds}
		token, held := record.held(queue.Lease{JobID: "j", Fence: 3})()
		if token != "j/3" || held != (name != "lost") || (ctx.Err() == nil) != held {
			t.Errorf("%s: %q, %t, %v", name, token, held, context.Cause(ctx))
		}
		if err := (&runner{}).stopped(ctx, queue.Job{}, record, ctx.Err()); !held && !errors.Is(err, queue.ErrLeaseLost) || held && err != nil {
			t.Errorf("%s: the run ends with %v", name, err)
		}
		stop(nil)
	}
}

package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/queue"
)

func TestLeaseIsKeptWhileTheJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := &memory{}, 0
		handler := func(context.Context, queue.Job) error {
			runs++
			<-time.After(10 * time.Minute)
			return nil
		}
		one, other := start(t, store, queue.KindOptions{}, handler), start(t, store, queue.KindOptions{}, handler)
		one.add(queue.NewJob{})
		pass(11 * time.Minute)
		if runs != 1 || !store.empty() {
			t.Errorf("%d runs", runs)
		}
		one.end()
		other.end()
	})
}

func TestLostLeaseEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		r.add(queue.NewJob{})
		r.store.steal()
		pass(5 * time.Second)
		if !errors.Is(cause, queue.ErrLeaseLost) {
			t.Errorf("the run ended with %v", cause)
		}
		if row := r.store.only(t); !row.running {
			t.Error("the run settled a job that is not its own any more")
		}
		r.end()
	})
}

// TestStoreDownForALease: no one extends the lease, so the run ends before another node can begin.
func TestStoreDownForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Duration
		begun := time.Now()
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, job queue.Job) error {
			if job.Attempt == 1 {
				<-ctx.Done()
				ended = time.Since(begun)
			}
			return ctx.Err()
		})
		r.add(queue.NewJob{})
		r.store.fail(errDown)
		pass(time.Minute)
		if ended < 15*time.Second || ended > 20*time.Second {
			t.Errorf("the run ended after %v", ended)
		}
		r.store.fail(nil)
		pass(10 * time.Second)
		if !r.store.empty() {
			t.Error("the job did not run again")
		}
		r.end()
	})
}

// TestOutcomeIsRepeated: the store is away for a moment when the run ends.
func TestOutcomeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := &memory{}, 0
		r := start(t, store, queue.KindOptions{}, func(context.Context, queue.Job) error {
			runs++
			store.fail(errDown)
			return nil
		})
		r.add(queue.NewJob{})
		pass(3 * time.Second)
		store.fail(nil)
		pass(time.Minute)
		if runs != 1 || !store.empty() {
			t.Errorf("%d runs", runs)
		}
		r.end()
	})
}

func TestStopLetsJobsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 1}, func(context.Context, queue.Job) error {
			<-time.After(8 * time.Second)
			return nil
		})
		r.add(queue.NewJob{Payload: "running"}, queue.NewJob{Payload: "waiting"})
		begun := time.Now()
		r.end()
		if row := r.store.only(t); row.Payload != "waiting" || time.Since(begun) != 8*time.Second {
			t.Errorf("left %+v after %v", row, time.Since(begun))
		}
	})
}

func TestStopReleasesWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			return queue.RetryAfter(time.Hour, ctx.Err())
		})
		r.add(queue.NewJob{})
		begun := time.Now()
		r.end()
		row := r.store.only(t)
		if row.running || row.Attempt != 0 || row.runAt.After(time.Now()) || time.Since(begun) != 10*time.Second {
			t.Errorf("left %+v after %v", row, time.Since(begun))
		}
		ran := false
		next := start(t, r.store, queue.KindOptions{}, func(context.Context, queue.Job) error { ran = true; return nil })
		if !ran {
			t.Error("another node did not take the job at once")
		}
		next.end()
	})
}

func TestStopKeepsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			return queue.GiveUp("the peer is gone", nil)
		})
		r.add(queue.NewJob{})
		r.end()
		if row := r.store.only(t); !row.dead || row.LastError != "the peer is gone" {
			t.Errorf("left %+v", row)
		}
	})
}

// TestUnwantedWorkEnds: the store says with the heartbeat that the work of a job is not wanted any more.
func TestUnwantedWorkEnds(t *testing.T) {
	for name, outcome := range map[string]func(ctx context.Context) error{
		"no outcome of its own": func(ctx context.Context) error { return ctx.Err() },
		"a retry for the end":   func(ctx context.Context) error { return queue.RetryAfter(time.Second, ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cause error
				runs := 0
				r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
					runs++
					<-ctx.Done()
					cause = context.Cause(ctx)
					return outcome(ctx)
				})
				r.add(queue.NewJob{})
				r.store.drop()
				pass(time.Minute)
				if !errors.Is(cause, queue.ErrUnwanted) || runs != 1 || !r.store.empty() {
					t.Errorf("%d runs, the run ended with %v, no job left: %t", runs, cause, r.store.empty())
				}
				r.end()
			})
		})
	}
}

// TestUnwantedWorkMayEndAsItLikes: the handler of a job that is not wanted any more says what becomes of it.
func TestUnwantedWorkMayEndAsItLikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			return queue.GiveUp("for the operator", nil)
		})
		r.add(queue.NewJob{})
		r.store.drop()
		pass(time.Minute)
		if row := r.store.only(t); !row.dead || row.LastError != "for the operator" {
			t.Errorf("left %+v", row)
		}
		r.end()
	})
}

// TestRunFindsItsLeaseOver: a run that begins something late looks at its lease before the next heartbeat does.
func TestRunFindsItsLeaseOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []bool
		ended := true
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, job queue.Job) error {
			if job.Attempt == 1 {
				held = append(held, job.Held())
				<-time.After(15 * time.Second)
				held, ended = append(held, job.Held()), ctx.Err() != nil
				return queue.ErrLeaseLost
			}
			held = append(held, job.Held())
			return nil
		})
		r.add(queue.NewJob{})
		r.store.fail(errDown)
		pass(time.Minute)
		r.store.fail(nil)
		pass(10 * time.Second)
		if !slices.Equal(held, []bool{true, false, true}) || ended || !r.store.empty() {
			t.Errorf("held %v, ended by the heartbeat %t", held, ended)
		}
		if !(queue.Job{}).Held() {
			t.Error("a job outside of a queue has no lease that could end")
		}
		r.end()
	})
}

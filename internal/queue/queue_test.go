package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// rig is a running queue over a memory store.
type rig struct {
	*testing.T
	*queue.Queue
	store *memory
	stop  func() error // ends the queue's context and returns what Run gave
}

func start(t *testing.T, store *memory, options queue.KindOptions, handler queue.Handler) *rig {
	t.Helper()
	q := queue.New(store, queue.Options{Logger: quiet})
	q.Handle("work", options, handler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	synctest.Wait()
	return &rig{T: t, Queue: q, store: store, stop: func() error {
		cancel()
		return <-ended
	}}
}

func (r *rig) add(jobs ...queue.NewJob) {
	for i := range jobs {
		jobs[i].Kind = "work"
	}
	r.store.add(jobs...)
	r.Wake("work")
	synctest.Wait()
}

func (r *rig) end() {
	r.Helper()
	if err := r.stop(); err != nil {
		r.Errorf("Run: %v", err)
	}
}

// pass lets time go by and everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRunsAtOnceAfterWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var payloads []string
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 1}, func(_ context.Context, job queue.Job) error {
			payloads = append(payloads, job.Payload)
			return nil
		})
		begun := time.Now()
		r.add(queue.NewJob{Payload: "a"}, queue.NewJob{Payload: "b"}, queue.NewJob{Payload: "c"})
		if !slices.Equal(payloads, []string{"a", "b", "c"}) || time.Since(begun) != 0 || !r.store.empty() {
			t.Errorf("ran %v after %v", payloads, time.Since(begun))
		}
		r.end()
	})
}

func TestPollFindsWhatNobodyAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		r := start(t, &memory{}, queue.KindOptions{}, func(context.Context, queue.Job) error { runs.Add(1); return nil })
		r.store.add(queue.NewJob{Kind: "work"})
		pass(5 * time.Second)
		if runs.Load() != 1 {
			t.Errorf("%d runs within one poll", runs.Load())
		}
		r.end()
	})
}

func TestRunsWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(90*time.Minute + 123*time.Millisecond)
		var ran time.Time
		r := start(t, &memory{}, queue.KindOptions{}, func(context.Context, queue.Job) error { ran = time.Now(); return nil })
		r.add(queue.NewJob{RunAt: due})
		pass(2 * time.Hour)
		if late := ran.Sub(due); late < 0 || late > 20*time.Millisecond {
			t.Errorf("ran %v after it was due", late)
		}
		r.end()
	})
}

func TestIdleLoopRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			return ctx.Err()
		})
		r.add(queue.NewJob{Partition: "p"}, queue.NewJob{Partition: "p"}) // one runs for long, one waits behind it
		before := r.store.claimed()
		pass(time.Minute)
		if claims := r.store.claimed() - before; claims > 30 {
			t.Errorf("%d claims in an idle minute", claims)
		}
		r.end()
	})
}

func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 3}, func(context.Context, queue.Job) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second)
			now.Add(-1)
			return nil
		})
		begun := time.Now()
		r.add(make([]queue.NewJob, 9)...)
		for !r.store.empty() {
			pass(100 * time.Millisecond)
		}
		if most.Load() != 3 || time.Since(begun) > 3200*time.Millisecond {
			t.Errorf("at most %d at once, done after %v", most.Load(), time.Since(begun))
		}
		r.end()
	})
}

func TestPartitionRunsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var payloads []string
		r := start(t, &memory{}, queue.KindOptions{}, func(_ context.Context, job queue.Job) error {
			<-time.After(time.Second)
			payloads = append(payloads, job.Payload)
			return nil
		})
		r.add(queue.NewJob{Payload: "1", Partition: "p"}, queue.NewJob{Payload: "2", Partition: "p"}, queue.NewJob{Payload: "3", Partition: "p"})
		pass(20 * time.Second)
		if strings.Join(payloads, "") != "123" {
			t.Errorf("ran %v", payloads)
		}
		r.end()
	})
}

func TestOutcomes(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		options  queue.KindOptions
		handler  func(attempt int) error
		attempts int           // runs until the job rests
		within   time.Duration // of all runs
		left     string        // reason of the dead letter; empty = done
	}{
		"done":    {handler: func(int) error { return nil }, attempts: 1},
		"give up": {handler: func(int) error { return queue.GiveUp("no such host", broken) }, attempts: 1, left: "no such host: broken"},
		"schedule": {
			options: queue.KindOptions{Schedule: []time.Duration{time.Second, time.Minute}}, handler: func(int) error { return broken },
			attempts: 3, within: time.Minute + 2*time.Second, left: "gave up after 3 attempts: broken",
		},
		"backoff": {
			options: queue.KindOptions{MaxAttempts: 4, Backoff: func(n int) time.Duration { return time.Duration(n) * time.Second }},
			handler: func(int) error { return broken }, attempts: 4, within: 7 * time.Second, left: "gave up after 4 attempts: broken",
		},
		"retry after": {
			handler: func(attempt int) error {
				if attempt < 20 {
					return queue.RetryAfter(time.Minute, broken)
				}
				return nil
			}, attempts: 20, within: 20 * time.Minute,
		},
		"retry after is limited": {
			options: queue.KindOptions{MaxAttempts: 2}, handler: func(int) error { return queue.RetryAfter(time.Minute, broken) },
			attempts: 2, within: 2 * time.Minute, left: "gave up after 2 attempts: retry: broken",
		},
		"panic": {
			options: queue.KindOptions{MaxAttempts: 1}, handler: func(int) error { panic("oh") }, attempts: 1,
			left: "gave up after 1 attempts: panic: oh",
		},
		"wrapped": {
			handler:  func(int) error { return errors.Join(queue.GiveUp("no", nil), broken) },
			attempts: 1, left: "no\nbroken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, begun := 0, time.Now()
				var last time.Time
				r := start(t, &memory{}, test.options, func(_ context.Context, job queue.Job) error {
					runs, last = runs+1, time.Now()
					if job.Attempt != runs {
						t.Errorf("attempt %d in run %d", job.Attempt, runs)
					}
					return test.handler(runs)
				})
				r.add(queue.NewJob{})
				pass(time.Hour)
				if runs != test.attempts || last.Sub(begun) > test.within+time.Second {
					t.Errorf("%d runs, the last after %v", runs, last.Sub(begun))
				}
				if test.left == "" != r.store.empty() {
					t.Fatalf("store empty: %v", r.store.empty())
				}
				if test.left != "" {
					if row := r.store.only(t); !row.dead || row.LastError != test.left {
						t.Errorf("dead %v, reason %q", row.dead, row.LastError)
					}
				}
				r.end()
			})
		})
	}
}

func TestSnoozeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := start(t, &memory{}, queue.KindOptions{MaxAttempts: 1}, func(_ context.Context, job queue.Job) error {
			if runs++; job.Attempt != 1 {
				t.Errorf("attempt %d", job.Attempt)
			}
			if runs < 10 {
				return queue.SnoozeFor(time.Minute)
			}
			return nil
		})
		r.add(queue.NewJob{})
		pass(9*time.Minute + 10*time.Second)
		if runs != 10 || !r.store.empty() {
			t.Errorf("%d runs", runs)
		}
		r.end()
	})
}

func TestHandlerSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		r := start(t, store, queue.KindOptions{}, func(ctx context.Context, job queue.Job) error {
			return errors.Join(store.Settle(ctx, job.Lease, queue.Outcome{Kind: queue.Done}), queue.ErrSettled)
		})
		r.add(queue.NewJob{})
		if !store.empty() {
			t.Error("not settled")
		}
		r.end()
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &memory{}, queue.KindOptions{Timeout: time.Minute, MaxAttempts: 1}, func(ctx context.Context, _ queue.Job) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		r.add(queue.NewJob{})
		pass(time.Minute + time.Second)
		if row := r.store.only(t); !row.dead || !strings.Contains(row.LastError, "longer than the kind allows") {
			t.Errorf("row %+v", row)
		}
		r.end()
	})
}

func TestCrashesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		store.add(queue.NewJob{Kind: "work"})
		for range 3 { // three processes that die with the job in hand
			jobs, err := queuetest.Claim(t.Context(), store, "dead", "work", 1, time.Second)
			if err != nil || len(jobs) != 1 {
				t.Fatalf("claim: %v, %v", jobs, err)
			}
			<-time.After(2 * time.Second)
		}
		r := start(t, store, queue.KindOptions{MaxAttempts: 3}, func(context.Context, queue.Job) error {
			t.Error("ran a fourth time")
			return nil
		})
		if row := store.only(t); !row.dead || !strings.Contains(row.LastError, "gave up after 3 attempts") {
			t.Errorf("row %+v", row)
		}
		r.end()
	})
}

func TestClaimFailuresPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		store := &memory{}
		store.fail(errDown)
		r := start(t, store, queue.KindOptions{}, func(context.Context, queue.Job) error { runs.Add(1); return nil })
		r.add(queue.NewJob{})
		pass(time.Minute)
		if claims := store.claimed(); claims > 60 {
			t.Errorf("%d claims while the store was down for a minute", claims)
		}
		store.fail(nil)
		pass(6 * time.Second)
		if runs.Load() != 1 {
			t.Errorf("%d runs after the store came back", runs.Load())
		}
		r.end()
	})
}

func TestSecondHandlerPanics(t *testing.T) {
	q := queue.New(&memory{}, queue.Options{})
	handler := func(context.Context, queue.Job) error { return nil }
	q.Handle("work", queue.KindOptions{}, handler)
	defer func() {
		if recover() == nil {
			t.Error("two handlers of a kind")
		}
	}()
	q.Handle("work", queue.KindOptions{}, handler)
}

func TestWakeOfUnknownKind(*testing.T) {
	queue.New(&memory{}, queue.Options{}).Wake("unknown")
}

func TestStoppedTwiceIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &memory{}, queue.KindOptions{}, func(context.Context, queue.Job) error {
			<-release // does not heed its context
			return nil
		})
		r.add(queue.NewJob{})
		begun := time.Now()
		if err := r.stop(); !fault.Is(err, fault.Unavailable) || time.Since(begun) != 15*time.Second {
			t.Errorf("stopped after %v: %v", time.Since(begun), err)
		}
		close(release)
	})
}

// TestPlaceInABoundGroupIsTakenAtOnce: a wake-up that finds a group running all that it may is in vain, so the end of a run has
// to look again. A pull program that answered and asked for more waited for the poll instead.
func TestPlaceInABoundGroupIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, end := 0, make(chan struct{})
		r := start(t, &memory{}, queue.KindOptions{Limit: func(string) int { return 1 }}, func(context.Context, queue.Job) error {
			begun++
			<-end
			return nil
		})
		r.add(queue.NewJob{Group: "g", Member: "a"}, queue.NewJob{Group: "g", Member: "b"})
		r.Wake("work")
		synctest.Wait()
		if begun != 1 {
			t.Fatalf("%d runs began of a group that may have one", begun)
		}

		end <- struct{}{}
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d runs began; the second waits for the poll", begun)
		}
		close(end)
		r.end()
	})
}

// TestBacklogBehindALimitCostsLittle: hundreds who wait for an agent that is away cost those who wait for another one neither time nor reads.
func TestBacklogBehindALimitCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		var away atomic.Bool
		away.Store(true)
		limit := func(group string) int {
			if group == "away" && away.Load() {
				return 0
			}
			return 8
		}
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 8, Limit: limit}, func(context.Context, queue.Job) error {
			begun.Add(1)
			return nil
		})
		backlog := make([]queue.NewJob, 300)
		for i := range backlog {
			backlog[i] = queue.NewJob{Group: "away", Member: fmt.Sprint(i)}
		}
		r.add(backlog...)
		looks, read := r.store.claims, r.store.read
		for range 300 {
			r.Wake("work")
			synctest.Wait()
		}
		if more := r.store.claims - looks; more > 2 {
			t.Errorf("%d looks within an instant", more)
		}

		r.add(queue.NewJob{Group: "here", Member: "ana"})
		pass(10 * time.Millisecond)
		if begun.Load() != 1 {
			t.Errorf("%d runs began, want that of the other group", begun.Load())
		}
		if more := r.store.read - read; more > 100 {
			t.Errorf("%d shares were read, want those of one look", more)
		}

		away.Store(false)
		r.Wake("work")
		pass(time.Second)
		if begun.Load() != 301 {
			t.Errorf("%d runs began after the agent came back", begun.Load())
		}
		r.end()
	})
}

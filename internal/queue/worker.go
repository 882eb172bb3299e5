package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// claimTimeout bounds one claim. A claim is not called away when the queue stops: a lease that nobody knows
	// of would hold its job back for its whole length.
	claimTimeout = 10 * time.Second
	// shortPause is the wait after a claim that found nothing although something was due: another node or an
	// unfinished transaction holds it.
	shortPause = 20 * time.Millisecond
	// busyPause is the wait after a claim that found something. While work keeps coming, wake-ups end it and the
	// store is not asked what is due next.
	busyPause = 50 * time.Millisecond
	// maxClaim bounds the jobs of one claim.
	maxClaim = 100
)

// worker claims and starts the jobs of one kind.
type worker struct {
	queue   *Queue
	kind    string
	options KindOptions
	handler Handler
	wake    chan struct{} // something may be runnable
	freed   chan struct{} // a slot is free
	busy    atomic.Int64  // places that are taken
	waiting atomic.Bool   // a job found no place; no claim since then had places left over
	meters  meters

	serving sync.Mutex
	ctx     context.Context //nolint:containedctx // of the loop; nil while it does not run
}

// signal wakes the worker of a kind; there is none when this node does not handle it.
func (w *worker) signal() {
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop claims as soon as there is a free slot and a reason to look: a wake-up, a job coming due, or the slow poll.
// A claim that was filled is reason enough to look again.
func (w *worker) loop(ctx context.Context) {
	w.serve(ctx)
	defer w.serve(nil) //nolint:staticcheck // nil means that nobody serves
	look, failures := true, 0
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		if free := w.free(); look && free > 0 {
			free = w.take(free)
			claimed, err := w.claim(ctx, free)
			if err == nil && claimed < free {
				w.waiting.Store(false)
			}
			w.busy.Add(int64(claimed - free))
			look = err == nil && claimed == free && free > 0
			failures = countFailures(failures, err)
			pause.Reset(w.pause(ctx, claimed, failures))
		}
		select {
		case <-ctx.Done():
		case <-w.freed:
		case <-w.wake:
			look = true
		case <-pause.C:
			look = true
			pause.Reset(w.queue.options.Poll)
		}
	}
}

// serve lets seats be reserved until it is called with nil.
func (w *worker) serve(ctx context.Context) {
	w.serving.Lock()
	defer w.serving.Unlock()
	w.ctx = ctx
}

// free is how many jobs the next claim may bring. While it is under way a quarter of the places stay for seats, if no job
// waits: whoever gets none would wake the next claim.
func (w *worker) free() int {
	free := w.options.Concurrency - int(w.busy.Load())
	if !w.waiting.Load() {
		free -= free / 4
	}
	return min(free, maxClaim)
}

func countFailures(before int, err error) int {
	if err == nil {
		return 0
	}
	return before + 1
}

// claim takes up to free jobs, for which there are places, and starts them.
func (w *worker) claim(ctx context.Context, free int) (int, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	now := time.Now()
	until := now.Add(w.queue.options.Lease)
	jobs, err := w.queue.store.Claim(bounded, Claim{
		Owner: w.queue.options.Owner, Kind: w.kind, Limit: free, Now: now, Until: until,
	})
	if err != nil {
		claimFailures.WithLabelValues(w.kind).Inc()
		w.queue.options.Logger.WarnContext(ctx, "claim jobs", "kind", w.kind, "error", err)
		return 0, err
	}
	for _, job := range jobs {
		w.start(ctx, job, until)
	}
	return len(jobs), nil
}

// pause is how long to wait for a wake-up before looking again.
func (w *worker) pause(ctx context.Context, claimed, failures int) time.Duration {
	poll := w.queue.options.Poll/2 + rand.N(w.queue.options.Poll/2)
	if failures > 0 {
		return min(poll, rand.N(time.Second<<min(failures, 6))+shortPause)
	}
	if claimed > 0 {
		return min(poll, busyPause)
	}
	due, err := w.queue.store.NextDue(ctx, w.kind)
	if err != nil || due.IsZero() {
		return poll
	}
	return min(poll, max(time.Until(due), shortPause))
}

package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"inbox/internal/telemetry"
)

// run is one job while its handler runs.
type run struct {
	worker *worker
	job    Job
	ctx    context.Context
	cancel context.CancelCauseFunc

	lock  sync.Mutex
	until time.Time // end of the lease as far as we know
}

// start runs a job at a slot that was taken.
func (w *worker) start(ctx context.Context, job Job, until time.Time) {
	ctx, cancel := context.WithCancelCause(telemetry.With(context.WithoutCancel(ctx), "job", job.ID))
	r := &run{worker: w, job: job, ctx: ctx, cancel: cancel, until: until}
	r.job.run = r
	w.meters.running.Inc()
	if job.Attempt == 1 {
		w.meters.wait.Observe(time.Since(job.CreatedAt).Seconds())
	}
	w.queue.running.add(r)
	go r.execute()
}

func (r *run) execute() {
	w := r.worker
	begun := time.Now()
	err := r.handle()
	w.meters.run.Observe(time.Since(begun).Seconds())
	ended := r.settle(err)
	w.meters.ended(ended)
	r.cancel(nil)
	w.meters.running.Dec()
	w.queue.running.remove(r)

	if ended != "settled" && (ended != "done" || r.job.Partition != "") {
		w.signal() // there is a new due time, or the next of the partition may go; a handler's own transaction tells of it itself
	}
	w.leave(r.job.Share)
}

// handle calls the handler. A job that has used up its attempts already was running when its worker died.
func (r *run) handle() (err error) {
	options := r.worker.options
	if options.MaxAttempts > 0 && r.job.Attempt > options.MaxAttempts {
		return GiveUp(fmt.Sprintf("gave up after %d attempts; the last one ended without a result", r.job.Attempt-1), nil)
	}

	ctx := r.ctx
	if options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, options.Timeout, errOverdue)
		defer cancel()
	}

	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
			r.worker.queue.options.Logger.ErrorContext(ctx, "job handler panicked",
				"kind", r.job.Kind, "panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
		}
	}()
	return r.worker.handler(ctx, r.job)
}

// settle writes the outcome and returns its name for the metrics.
func (r *run) settle(err error) string {
	switch {
	case errors.Is(err, ErrSettled):
		return "settled"
	case errors.Is(err, ErrLeaseLost), errors.Is(context.Cause(r.ctx), ErrLeaseLost):
		return "lost"
	}

	outcome, name := r.worker.options.outcome(r.job.Attempt, err, time.Now()), ""
	switch outcome.Kind {
	case Done:
		name = "done"
	case Retry:
		name = "retry"
	case Snooze:
		name = "snooze"
	case Dead:
		name = "dead"
	case Released:
		name = "released"
	}

	switch {
	case endedBy(r.ctx, err, errStopping): // the run does not count
		outcome, name = Outcome{Kind: Released}, "released"
	case endedBy(r.ctx, err, ErrUnwanted):
		outcome, name = Outcome{Kind: Done}, "done"
	}

	return r.write(outcome, name)
}

// write repeats until the store took the outcome or the lease is over: the job would run a second time otherwise.
func (r *run) write(outcome Outcome, name string) string {
	q := r.worker.queue
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), r.leaseEnd())
		err := q.store.Settle(ctx, r.job.Lease, outcome)
		cancel()

		switch {
		case err == nil:
			return name
		case errors.Is(err, ErrLeaseLost):
			return "lost"
		case time.Now().Add(pause).After(r.leaseEnd()) || errors.Is(context.Cause(r.ctx), errStopping):
			q.options.Logger.ErrorContext(r.ctx, "settle job; it will run again",
				"kind", r.job.Kind, "outcome", name, "error", err)
			return "unsettled"
		}

		<-time.After(pause)
	}
}

func (r *run) leaseEnd() time.Time {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.until
}

func (r *run) extended(until time.Time) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.until = until
}

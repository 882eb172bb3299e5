package queue

import (
	"context"
	"time"
)

// Seat is a place of this process that is kept for one job while the transaction that stores it commits. The row is stored
// with the seat's lease, so that no claim has to find it: who waits for the job waits for one commit less. A process that
// dies loses the lease like any other.
type Seat struct {
	Owner  string    // for the row
	Until  time.Time // end of the lease, for the row
	worker *worker
	ctx    context.Context //nolint:containedctx // of the worker's loop, for the run
}

// Reserve keeps a place for a job of the kind. It is nil when none is free, while the queue does not run, and while jobs
// wait that found no place: those who come later do not overtake them. Every seat is started or freed.
func (q *Queue) Reserve(kind string) *Seat {
	w := q.workers[kind]
	if w == nil {
		return nil
	}
	w.serving.Lock()
	defer w.serving.Unlock()
	if w.ctx == nil || w.ctx.Err() != nil {
		return nil
	}
	if w.waiting.Load() || w.take(1) == 0 {
		w.waiting.Store(true)
		return nil
	}
	q.running.keep(1)
	return &Seat{Owner: q.options.Owner, Until: time.Now().Add(q.options.Lease), worker: w, ctx: w.ctx}
}

// Start runs the job, which is stored now as the first run of fence 1.
func (s *Seat) Start(job NewJob) {
	w := s.worker
	w.start(s.ctx, Job{
		ID: job.ID, Kind: job.Kind, Partition: job.Partition, Payload: job.Payload,
		Attempt: 1, Lease: Lease{JobID: job.ID, Fence: 1}, CreatedAt: time.Now(),
	}, s.Until)
	w.queue.running.keep(-1)
}

// Free gives the place back: nothing was stored with it.
func (s *Seat) Free() {
	s.worker.leave(1)
	s.worker.queue.running.keep(-1)
}

// take takes up to n free places and says how many.
func (w *worker) take(n int) int {
	for {
		busy := w.busy.Load()
		taken := min(w.options.Concurrency-int(busy), n)
		if taken <= 0 {
			return 0
		}
		if w.busy.CompareAndSwap(busy, busy+int64(taken)) {
			return taken
		}
	}
}

// leave gives places back.
func (w *worker) leave(n int) {
	w.busy.Add(int64(-n))
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

package queue

import (
	"context"
	"time"
)

// Reservation is a slot of this process that is kept for one job while the transaction that stores it commits. The row is stored
// with the reservation's lease, so that no claim has to find it: its sender waits for one commit less. A process that
// dies loses the lease like any other.
type Reservation struct {
	Owner  string        // for the row
	Lease  time.Duration // for the row
	until  time.Time     // end of the lease, at the earliest
	share  Share
	worker *worker
	ctx    context.Context //nolint:containedctx // of the worker's loop, for the run
}

// Reserve keeps a slot for a job that is about to be stored. It is nil when the job's group and member have none to
// begin with, while the queue does not run, and while jobs wait that found no slot: those who come later do not overtake
// them. Every reservation is started or freed.
func (q *Queue) Reserve(job NewJob) *Reservation {
	w := q.workers[job.Kind]
	if w == nil {
		return nil
	}

	w.serving.Lock()
	defer w.serving.Unlock()
	share := job.Share()
	if w.ctx == nil || w.ctx.Err() != nil || !w.slots.keep(share) {
		return nil
	}

	q.running.keep(1)
	return &Reservation{
		Owner: q.options.Owner, Lease: q.options.Lease, until: time.Now().Add(q.options.Lease), share: share, worker: w, ctx: w.ctx,
	}
}

// Start runs the job, which is stored now as the first run of fence 1.
func (s *Reservation) Start(job NewJob) {
	w := s.worker
	w.start(s.ctx, Job{
		ID: job.ID, Kind: job.Kind, Partition: job.Partition, Payload: job.Payload,
		Attempt: 1, Lease: Lease{JobID: job.ID, Fence: 1}, CreatedAt: time.Now(), Share: s.share, Reserved: true,
	}, s.until)
	w.queue.running.keep(-1)
}

// Free returns the slot: nothing was stored with it.
func (s *Reservation) Free() {
	s.worker.leave(s.share)
	s.worker.queue.running.keep(-1)
}

// leave returns a slot.
func (w *worker) leave(share Share) {
	if w.slots.leave(share) {
		w.signal()
	}
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

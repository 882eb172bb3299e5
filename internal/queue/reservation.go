package queue

import (
	"context"
	"time"
)

// Reservation is a place of this process that is kept for one job while the transaction that stores it commits. The row is stored
// with the seat's lease, so that no claim has to find it: who waits for the job waits for one commit less. A process that
// dies loses the lease like any other.
type Reservation struct {
	Owner  string        // for the row
	Lease  time.Duration // for the row
	until  time.Time     // end of the lease, at the earliest
	lane   Lane
	worker *worker
	ctx    context.Context //nolint:containedctx // of the worker's loop, for the run
}

// Reserve keeps a place for a job that is about to be stored. It is nil when the job's group and member have none to
// begin with, while the queue does not run, and while jobs wait that found no place: those who come later do not overtake
// them. Every seat is started or freed.
func (q *Queue) Reserve(job NewJob) *Reservation {
	w := q.workers[job.Kind]
	if w == nil {
		return nil
	}
	w.serving.Lock()
	defer w.serving.Unlock()
	lane := job.Lane()
	if w.ctx == nil || w.ctx.Err() != nil || !w.places.seat(lane) {
		return nil
	}
	q.running.keep(1)
	return &Reservation{
		Owner: q.options.Owner, Lease: q.options.Lease, until: time.Now().Add(q.options.Lease), lane: lane, worker: w, ctx: w.ctx,
	}
}

// Start runs the job, which is stored now as the first run of fence 1.
func (s *Reservation) Start(job NewJob) {
	w := s.worker
	w.start(s.ctx, Job{
		ID: job.ID, Kind: job.Kind, Partition: job.Partition, Payload: job.Payload,
		Attempt: 1, Lease: Lease{JobID: job.ID, Fence: 1}, CreatedAt: time.Now(), Lane: s.lane,
	}, s.until)
	w.queue.running.keep(-1)
}

// Free returns the place: nothing was stored with it.
func (s *Reservation) Free() {
	s.worker.leave(s.lane)
	s.worker.queue.running.keep(-1)
}

// leave returns a place.
func (w *worker) leave(lane Lane) {
	if w.places.leave(lane) {
		w.signal()
	}
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

package queue

import (
	"context"
	"sync"
	"time"
)

// maxStopping bounds the wait for handlers whose contexts have ended.
const maxStopping = 5 * time.Second

// runs are the jobs that run in this process.
type runs struct {
	lock    sync.Mutex
	current map[Lease]*run
	kept    int           // reservations whose jobs are being stored
	empty   chan struct{} // closed when there is none of either; nil when no caller waits
}

func (r *runs) add(one *run) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.current == nil {
		r.current = make(map[Lease]*run)
	}
	r.current[one.job.Lease] = one
}

func (r *runs) remove(one *run) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.current, one.job.Lease)
	r.tell()
}

// keep counts reservations.
func (r *runs) keep(reservations int) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.kept += reservations
	r.tell()
}

func (r *runs) tell() {
	if len(r.current)+r.kept == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

func (r *runs) all() []*run {
	r.lock.Lock()
	defer r.lock.Unlock()
	all := make([]*run, 0, len(r.current))
	for _, one := range r.current {
		all = append(all, one)
	}
	return all
}

// wait waits until nothing runs, at most d, and returns the number that still runs.
func (r *runs) wait(d time.Duration) int {
	r.lock.Lock()
	if len(r.current)+r.kept == 0 {
		r.lock.Unlock()
		return 0
	}

	empty := make(chan struct{})
	r.empty = empty
	r.lock.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-empty:
		return 0
	case <-timer.C:
		return len(r.all())
	}
}

// drain lets running jobs finish within grace, then ends their contexts and waits for them to return.
func (r *runs) drain(grace time.Duration) int {
	if r.wait(grace) == 0 {
		return 0
	}
	for _, one := range r.all() {
		one.cancel(errStopping)
	}
	return r.wait(min(grace, maxStopping))
}

// heartbeat prolongs the leases of all running jobs, every third of a lease.
func (q *Queue) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(q.options.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			q.beat(ctx)
		}
	}
}

// beat extends what runs and ends the runs whose work is not wanted any more, whose job was taken over, or whose lease ran
// out while the store did not answer: another node may have them by now.
func (q *Queue) beat(ctx context.Context) {
	running := q.running.all()
	if len(running) == 0 {
		return
	}

	leases := make([]Lease, len(running))
	for i, one := range running {
		leases[i] = one.job.Lease
	}

	until := time.Now().Add(q.options.Lease)
	bounded, cancel := context.WithTimeout(ctx, q.options.Lease/3)
	defer cancel()
	held, unwanted, err := q.store.Extend(bounded, leases, q.options.Lease)
	if err != nil {
		q.options.Logger.WarnContext(ctx, "extend leases", "error", err)
	}

	kept := make(map[Lease]bool, len(held))
	for _, lease := range held {
		kept[lease] = true
	}

	dropped := make(map[Lease]bool, len(unwanted))
	for _, lease := range unwanted {
		dropped[lease] = true
	}

	for _, one := range running {
		switch {
		case dropped[one.job.Lease]:
			one.extended(until)
			one.cancel(ErrUnwanted)
		case kept[one.job.Lease]:
			one.extended(until)
		case err == nil || time.Now().After(one.leaseEnd()):
			one.cancel(ErrLeaseLost)
		}
	}
}

package queue_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

// sit stores a job with the lease of a reservation and starts it, as a transaction would that committed.
func (r *rig) sit(reservation *queue.Reservation, job queue.NewJob) {
	r.Helper()
	job.ID, job.Kind = queuetest.NewID(), "work"
	r.store.add(job)
	r.store.lock.Lock()
	row := r.store.rows[len(r.store.rows)-1]
	row.running, row.until, row.Attempt, row.Lease.Fence = true, time.Now().Add(reservation.Lease), 1, 1
	r.store.lock.Unlock()
	reservation.Start(job)
}

func TestSeatRunsWithoutAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []queue.Job
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 2}, func(_ context.Context, job queue.Job) error {
			ran = append(ran, job)
			return nil
		})
		if r.Reserve(queue.NewJob{Kind: "other"}) != nil {
			t.Error("a reservation for a kind that nobody handles")
		}
		first, second := r.Reserve(queue.NewJob{Kind: "work"}), r.Reserve(queue.NewJob{Kind: "work"})
		if first == nil || second == nil || r.Reserve(queue.NewJob{Kind: "work"}) != nil {
			t.Fatal("want as many reservations as jobs may run")
		}
		second.Free()
		r.add(queue.NewJob{Payload: "turned away"})
		synctest.Wait()
		ran = nil
		claims := r.store.claims
		r.sit(first, queue.NewJob{Payload: "mine"})
		synctest.Wait()
		if len(ran) != 1 || ran[0].Payload != "mine" || ran[0].Attempt != 1 || r.store.claims != claims {
			t.Errorf("ran %+v after %d claims more", ran, r.store.claims-claims)
		}
		pass(time.Second)
		if again := r.Reserve(queue.NewJob{Kind: "work"}); again == nil {
			t.Error("the place of a job that ended stays taken")
		} else {
			again.Free()
		}
		r.end()
		if r.Reserve(queue.NewJob{Kind: "work"}) != nil {
			t.Error("a reservation in a queue that has stopped")
		}
	})
}

// TestNobodyOvertakesWhoWaits: a slot that becomes free belongs to the job that waits, not to the next one that comes.
func TestNobodyOvertakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		release := make(chan struct{})
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 1}, func(_ context.Context, job queue.Job) error {
			ran = append(ran, job.Payload)
			<-release
			return nil
		})
		first := r.Reserve(queue.NewJob{Kind: "work"})
		r.sit(first, queue.NewJob{Payload: "first"})
		if r.Reserve(queue.NewJob{Kind: "work"}) != nil {
			t.Fatal("a second place")
		}
		r.store.add(queue.NewJob{ID: queuetest.NewID(), Kind: "work", Payload: "waits"}) // its wake-up is still under way
		release <- struct{}{}
		synctest.Wait()
		if reservation := r.Reserve(queue.NewJob{Kind: "work"}); reservation != nil {
			t.Error("a reservation before the one that waits")
		}
		r.Wake("work")
		synctest.Wait()
		if !slices.Equal(ran, []string{"first", "waits"}) {
			t.Errorf("ran %q", ran)
		}
		close(release)
		pass(10 * time.Second)
		reservation := r.Reserve(queue.NewJob{Kind: "work"})
		if reservation == nil {
			t.Fatal("no reservation though nobody waits")
		}
		reservation.Free()
	})
}

func TestReservationsTakeNoMoreThanTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		release := make(chan struct{})
		r := start(t, &memory{}, queue.KindOptions{Concurrency: 3}, func(context.Context, queue.Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			<-release
			running.Add(-1)
			return nil
		})
		reservation := r.Reserve(queue.NewJob{Kind: "work"})
		r.add(queue.NewJob{Payload: "1"}, queue.NewJob{Payload: "2"}, queue.NewJob{Payload: "3"})
		r.sit(reservation, queue.NewJob{Payload: "4"})
		synctest.Wait()
		if running.Load() != 3 {
			t.Errorf("%d jobs run; want 3", running.Load())
		}
		close(release)
		pass(10 * time.Second)
		if most.Load() != 3 || running.Load() != 0 {
			t.Errorf("%d jobs ran at once, %d still do; want 3 and none", most.Load(), running.Load())
		}
		r.end()
	})
}

func TestStoppingWaitsForSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		r := start(t, &memory{}, queue.KindOptions{}, func(context.Context, queue.Job) error {
			ran = true
			return nil
		})
		reservation := r.Reserve(queue.NewJob{Kind: "work"})
		go func() {
			<-time.After(time.Second) // the commit takes that long
			r.sit(reservation, queue.NewJob{Payload: "late"})
		}()
		r.end()
		if !ran {
			t.Error("the queue stopped before the job of a reservation ran")
		}
	})
}

package queuetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/internal/queue"
)

func onePerPartition(_ *testing.T, p *probe) {
	for _, payload := range []string{"a1", "a2", "a3", "b1", "b2", "free1", "free2"} {
		partition := payload[:1]
		if strings.HasPrefix(payload, "free") {
			partition = ""
		}
		p.add(queue.NewJob{Payload: payload, Partition: partition})
	}

	jobs := p.expect("a1", "b1", "free1", "free2")
	p.expect()
	p.settle(jobs[0], queue.Outcome{Kind: queue.Done})
	p.expect("a2")
	p.settle(jobs[1], queue.Outcome{Kind: queue.Done})
	p.settle(p.expect("b2")[0], queue.Outcome{Kind: queue.Done})
	p.add(queue.NewJob{Payload: "b3", Partition: "b"})
	p.expect("b3")
}

func retryHoldsBack(_ *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "1", Partition: "p"}, queue.NewJob{Payload: "2", Partition: "p"})
	job := p.expect("1")[0]
	p.settle(job, queue.Outcome{Kind: queue.Retry, At: time.Now().Add(time.Minute)})
	p.expect()
	p.pass(time.Minute)
	job = p.expect("1")[0]
	p.settle(job, queue.Outcome{Kind: queue.Snooze, At: time.Now().Add(time.Minute)})
	p.expect()
	p.pass(time.Minute)
	p.settle(p.expect("1")[0], queue.Outcome{Kind: queue.Done})
	p.expect("2")
}

func deadLetsGo(_ *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "1", Partition: "p"}, queue.NewJob{Payload: "2", Partition: "p"})
	p.settle(p.expect("1")[0], queue.Outcome{Kind: queue.Dead, Reason: "broken"})
	p.settle(p.expect("2")[0], queue.Outcome{Kind: queue.Done})
	p.add(queue.NewJob{Payload: "3", Partition: "p"})
	p.expect("3")
}

func lateEarlierID(_ *testing.T, p *probe) {
	zero, one, two := NewID(), NewID(), NewID()
	p.add(queue.NewJob{ID: two, Payload: "2", Partition: "p"})
	p.add(queue.NewJob{ID: one, Payload: "1", Partition: "p"})
	job := p.expect("1")[0]
	p.add(queue.NewJob{ID: zero, Payload: "0", Partition: "p"})
	p.expect()
	p.settle(job, queue.Outcome{Kind: queue.Done})
	p.settle(p.expect("0")[0], queue.Outcome{Kind: queue.Done})
	p.expect("2")
}

func partitionTakenOver(t *testing.T, p *probe) {
	zero := NewID()
	p.add(queue.NewJob{Payload: "1", Partition: "p"})
	first := p.expect("1")[0]
	p.add(queue.NewJob{ID: zero, Payload: "0", Partition: "p"}, queue.NewJob{Payload: "2", Partition: "p"})
	p.pass(16 * time.Second)
	job := p.expect("0")[0]
	p.lost(p.Store.Settle(t.Context(), first.Lease, queue.Outcome{Kind: queue.Done}))
	p.settle(job, queue.Outcome{Kind: queue.Done})
	p.settle(p.expect("1")[0], queue.Outcome{Kind: queue.Done})
	p.expect("2")
}

func longPartition(_ *testing.T, p *probe) {
	long := strings.Repeat("https://example.org/thread/", 300)
	p.add(queue.NewJob{Payload: "1", Partition: long + "a"}, queue.NewJob{Payload: "2", Partition: long + "b"},
		queue.NewJob{Payload: "3", Partition: long + "a"})
	p.expect("1", "2")
}

// concurrentWorkers lets several workers empty the store and watches that partitions never overlap and keep order.
func concurrentWorkers(t *testing.T, p *probe) {
	const partitions, each = 6, 15
	for i := range each {
		for n := range partitions {
			p.add(queue.NewJob{Partition: fmt.Sprint(n), Payload: fmt.Sprint(i)})
		}
	}
	watch := newWatch(t)
	work(t, p, watch, partitions*each)
}

// enqueueRacesSettle adds jobs to a few partitions while workers settle others of the same: none may stay behind.
func enqueueRacesSettle(t *testing.T, p *probe) {
	const producers, each = 4, 40
	var group sync.WaitGroup
	for producer := range producers {
		group.Go(func() {
			for i := range each {
				job := queue.NewJob{ID: NewID(), Kind: "work", Partition: fmt.Sprint(i % 2), Payload: fmt.Sprint(producer, " ", i)}
				if err := p.Enqueue(t.Context(), job); err != nil {
					t.Errorf("enqueue: %v", err)
				}
			}
		})
	}

	watch := newWatch(t)
	watch.unordered = true
	work(t, p, watch, producers*each)
	group.Wait()
}

func work(t *testing.T, p *probe, watch *watch, total int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var done atomic.Int64
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for done.Load() < total && ctx.Err() == nil {
				jobs, err := Claim(ctx, p.Store, fmt.Sprint(worker), "work", 3, time.Minute)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}

				for _, job := range jobs {
					watch.begin(job)
				}

				for _, job := range jobs {
					watch.end(job)
					if err := p.Store.Settle(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
						t.Errorf("settle: %v", err)
					}
					done.Add(1)
				}
			}
		})
	}

	group.Wait()
	if done.Load() != total {
		t.Fatalf("%d of %d jobs done: the rest are stuck", done.Load(), total)
	}
}

// watch checks what runs together.
type watch struct {
	t         *testing.T
	lock      sync.Mutex
	running   map[string]bool
	last      map[string]int
	seen      map[string]bool
	unordered bool
}

func newWatch(t *testing.T) *watch {
	return &watch{t: t, running: map[string]bool{}, last: map[string]int{}, seen: map[string]bool{}}
}

func (w *watch) begin(job queue.Job) {
	w.lock.Lock()
	defer w.lock.Unlock()

	if w.seen[job.ID] || w.running[job.Partition] {
		w.t.Errorf("job %s of partition %s: given twice, or together with another", job.Payload, job.Partition)
	}

	w.seen[job.ID], w.running[job.Partition] = true, true
	if w.unordered {
		return
	}

	var number int
	_, _ = fmt.Sscan(job.Payload, &number)

	if before, ok := w.last[job.Partition]; ok && number != before+1 {
		w.t.Errorf("partition %s: job %d after job %d", job.Partition, number, before)
	}

	w.last[job.Partition] = number
}

// end comes before the settlement, which lets the next one go.
func (w *watch) end(job queue.Job) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.running[job.Partition] = false
}

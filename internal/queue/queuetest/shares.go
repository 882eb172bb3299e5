package queuetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/internal/queue"
)

// patience bounds the wait for a run in a case.
const patience = time.Minute

// runner is a queue over the store whose runs end when the case says so.
type runner struct {
	*probe
	queue   *queue.Queue
	started chan string // payloads, in the order in which runs begin
	lock    sync.Mutex
	running map[string]chan struct{}
	stop    func()
}

// run starts a queue whose runs end by themselves, or when the case says so.
func (p *probe) run(options queue.KindOptions, hold bool) *runner {
	p.Helper()
	r := &runner{probe: p, started: make(chan string, 10_000), running: map[string]chan struct{}{}}
	r.queue = queue.New(p.Store, queue.Options{Poll: time.Second, Logger: slog.New(slog.DiscardHandler)})
	r.queue.Handle("work", options, func(ctx context.Context, job queue.Job) error {
		release := make(chan struct{})
		r.lock.Lock()
		r.running[job.Payload] = release
		r.lock.Unlock()
		r.started <- job.Payload

		if hold {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})

	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.queue.Run(ctx) }()
	r.stop = func() {
		r.lock.Lock()
		for name := range r.running {
			r.end(name)
		}
		r.lock.Unlock()
		cancel()
		if err := <-ended; err != nil {
			p.Errorf("stop the queue: %v", err)
		}
	}

	return r
}

// end lets a run end; the lock is held.
func (r *runner) end(payload string) {
	if release := r.running[payload]; release != nil {
		close(release)
		delete(r.running, payload)
	}
}

// release lets runs end.
func (r *runner) release(payloads ...string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, payload := range payloads {
		r.end(payload)
	}
}

// next returns the payloads of the next n runs that begin.
func (r *runner) next(n int) (payloads []string) {
	r.Helper()
	timeout := time.After(patience)
	for len(payloads) < n {
		select {
		case payload := <-r.started:
			payloads = append(payloads, payload)
		case <-timeout:
			r.Fatalf("%d of %d runs began within %v: %q", len(payloads), n, patience, payloads)
		}
	}
	return payloads
}

// flood makes n jobs of a member; payloads are "group/member number".
func flood(group, member string, n int, guest bool) (jobs []queue.NewJob) {
	for i := range n {
		jobs = append(jobs, queue.NewJob{Group: group, Member: member, Guest: guest, Payload: fmt.Sprintf("%s/%s %d", group, member, i)})
	}
	return jobs
}

func count(payloads []string, prefix string) (number int) {
	for _, payload := range payloads {
		if strings.HasPrefix(payload, prefix) {
			number++
		}
	}
	return number
}

// groupsShare: one group has a thousand jobs in front of the few of others.
func groupsShare(t *testing.T, p *probe) {
	p.add(flood("loud", "a", 1000, false)...)
	p.add(flood("quiet", "b", 10, false)...)
	p.add(flood("still", "c", 10, false)...)
	r := p.run(queue.KindOptions{Concurrency: 1}, false)
	began := r.next(30)
	r.stop()

	for _, group := range []string{"loud/", "quiet/", "still/"} {
		if n := count(began, group); n < 9 || n > 11 {
			t.Errorf("%s began %d of the first 30 runs, want a third: %q", group, n, began)
		}
	}
}

// membersShare: within a group one member has most of the jobs.
func membersShare(t *testing.T, p *probe) {
	p.add(flood("g", "loud", 500, false)...)
	for member := range 4 {
		p.add(flood("g", fmt.Sprint("quiet", member), 5, false)...)
	}

	r := p.run(queue.KindOptions{Concurrency: 1}, false)
	began := r.next(25)
	r.stop()

	if n := count(began, "g/quiet"); n < 19 {
		t.Errorf("the four quiet members began %d of 25 runs, want at least 19: %q", n, began)
	}

	for member := range 4 {
		var numbers []string
		for _, payload := range began {
			if name, number, _ := strings.Cut(payload, " "); name == fmt.Sprint("g/quiet", member) {
				numbers = append(numbers, number)
			}
		}
		if !slices.IsSorted(numbers) {
			t.Errorf("jobs of member %d began in the order %q", member, numbers)
		}
	}
}

// guestsBehind: the guests of a group come behind its proven members, and have their share all the same.
func guestsBehind(t *testing.T, p *probe) {
	for guest := range 40 {
		p.add(flood("g", fmt.Sprint("guest", guest), 2, true)...)
	}

	p.add(flood("g", "proven", 40, false)...)
	r := p.run(queue.KindOptions{Concurrency: 1}, false)
	began := r.next(40)
	r.stop()

	if n := count(began, "g/guest"); n < 4 || n > 6 {
		t.Errorf("guests began %d of 40 runs, want an eighth: %q", n, began)
	}
}

// allSlotsUntilOthersWait: one member has all slots while no other one waits; a member that comes then does not wait for its runs.
func allSlotsUntilOthersWait(t *testing.T, p *probe) {
	p.add(flood("slow", "a", 20, false)...)
	r := p.run(queue.KindOptions{Concurrency: 8}, true)
	first := r.next(8)
	p.add(flood("slow", "c", 3, false)...)
	r.queue.Wake("work")

	if next := r.next(1); count(next, "slow/c") != 1 {
		t.Fatalf("%q began while another member waited", next)
	}

	p.add(flood("other", "b", 3, false)...)
	r.queue.Wake("work")

	if next := r.next(1); count(next, "other/") != 1 {
		t.Fatalf("%q began while another group waited", next)
	}

	r.release(first[:4]...)
	next := r.next(2) // ten run, of eight slots: two of the four are to be had
	if count(next, "other/") != 2 {
		t.Errorf("%q began; want those of the group that runs least", next)
	}

	r.stop()
}

// limitHolds: a group that can have nothing holds no slot, and what had begun goes on.
func limitHolds(t *testing.T, p *probe) {
	p.add(flood("away", "a", 100, true)...)
	taken := p.claim("work", 1)
	p.add(flood("here", "b", 10, false)...)
	p.pass(16 * time.Second) // the process of the first one is gone
	var lock sync.Mutex
	limit := 0
	r := p.run(queue.KindOptions{Concurrency: 4, Limit: func(group string) int {
		lock.Lock()
		defer lock.Unlock()
		if group == "away" {
			return limit
		}
		return 1000
	}}, true)

	began := r.next(4)
	if n := count(began, "away/"); n != 1 || !slices.Contains(began, taken[0].Payload) {
		t.Errorf("%q began; want only %q of the group that is away", began, taken[0].Payload)
	}

	r.release(began...)
	began = r.next(4)
	r.release(began...)

	if count(began, "here/") != 4 {
		t.Errorf("%q began", began)
	}

	r.release(r.next(3)...)
	lock.Lock()
	limit = 2
	lock.Unlock()
	r.queue.Wake("work")

	// Both are claimed at once and run beside each other, so either may say so first.
	if began := slices.Sorted(slices.Values(r.next(2))); !slices.Equal(began, []string{"away/a 1", "away/a 2"}) {
		t.Errorf("%q began when the group came back", began)
	}

	r.stop()
}

// manyShares: more members than one look takes in, and more than one group of them.
func manyShares(t *testing.T, p *probe) {
	const members = 80
	for member := range members {
		p.add(flood("wide", fmt.Sprint("m", member), 1, member%2 == 0)...)
	}

	p.add(flood("other", "x", 3, false)...)
	r := p.run(queue.KindOptions{Concurrency: 1}, false)
	began := r.next(members + 3)
	r.stop()

	if n := count(began[:12], "other/"); n != 3 {
		t.Errorf("the other group began %d of 12 runs, want its 3: %q", n, began[:12])
	}

	slices.Sort(began)
	if len(slices.Compact(began)) != members+3 {
		t.Error("a job ran twice")
	}
}

// memberBound: one member never has more than its bound, even alone.
func memberBound(t *testing.T, p *probe) {
	p.add(flood("g", "a", 10, false)...)
	r := p.run(queue.KindOptions{Concurrency: 8, PerMember: 3}, true)
	r.next(3)
	p.add(flood("g", "b", 10, false)...)
	r.queue.Wake("work")
	if next := r.next(3); count(next, "g/b") != 3 {
		t.Errorf("%q began above the bound", next)
	}
	r.stop()
}

// reservationsShare: slots that are kept for messages under way obey the same shares.
func reservationsShare(t *testing.T, p *probe) {
	r := p.run(queue.KindOptions{Concurrency: 4, Limit: func(group string) int {
		if group == "away" {
			return 0
		}
		return 1000
	}}, true)

	p.add(queue.NewJob{Payload: "begun", Group: "x", Member: "y"})
	r.queue.Wake("work")
	r.release(r.next(1)...) // the queue runs
	job := func(group, member string, guest bool) queue.NewJob {
		return queue.NewJob{Kind: "work", Group: group, Member: member, Guest: guest}
	}
	if r.queue.Reserve(job("away", "a", false)) != nil {
		t.Error("a reservation for a group that can have nothing")
	}

	var reservations []*queue.Reservation
	for range 10 {
		if reservation := r.queue.Reserve(job("g", "loud", true)); reservation != nil {
			reservations = append(reservations, reservation)
		}
	}

	if len(reservations) < 3 || len(reservations) > 4 {
		t.Errorf("one member has %d reservations of 4 places", len(reservations))
	}

	p.add(flood("g", "loud", 10, true)...)
	p.add(flood("other", "quiet", 1, false)...)
	r.queue.Wake("work")
	began := r.next(1)
	if len(reservations) == 3 && count(began, "g/loud") == 1 {
		began = r.next(1)
	}
	if count(began, "other/") != 1 {
		t.Errorf("%q began beside the reservations of the loud one", began)
	}

	for _, reservation := range reservations {
		reservation.Free()
	}

	r.stop()
}

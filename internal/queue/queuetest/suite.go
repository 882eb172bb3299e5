// Package queuetest is the conformance suite of queue.Store: every store must pass it. It is for tests only.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/internal/queue"
)

// Bench is an empty store under test.
type Bench struct {
	Store   queue.Store
	Enqueue func(ctx context.Context, jobs ...queue.NewJob) error // in one transaction
	Pass    func(ctx context.Context, d time.Duration) error      // lets time go by: all rows become so much older
}

// Claim makes ready what is due and claims up to limit jobs of a kind, share by share.
func Claim(ctx context.Context, store queue.Store, owner, kind string, limit int, lease time.Duration) ([]queue.Job, error) {
	for more := true; more; {
		var err error
		if more, err = store.Revive(ctx, kind); err != nil {
			return nil, err
		}
	}

	shares, err := store.Shares(ctx, kind, queue.Share{Rank: queue.RankResumed - 1}, 1000)
	if err != nil {
		return nil, err
	}

	var jobs []queue.Job
	for _, share := range shares {
		claimed, err := store.Claim(ctx, queue.Claim{
			Owner: owner, Kind: kind, Lease: lease, Takes: []queue.Take{{Share: share, Count: limit - len(jobs)}},
		})
		if jobs = append(jobs, claimed...); err != nil || len(jobs) == limit {
			return jobs, err
		}
	}

	return jobs, nil
}

// Run runs the suite; open returns a new empty store each time.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	cases := map[string]func(*testing.T, *probe){
		"due jobs come in order of time":           dueInOrder,
		"kinds do not mix":                         kindsApart,
		"next due":                                 nextDue,
		"a leased job is not given again":          leased,
		"an expired lease is taken over":           takenOver,
		"an expired lease that nobody took holds":  expiredButHeld,
		"extend gives the leases still held":       extended,
		"outcomes":                                 outcomes,
		"one job of a partition at a time":         onePerPartition,
		"a waiting job holds its partition back":   retryHoldsBack,
		"a dead job lets its partition go on":      deadLetsGo,
		"an earlier id that comes late goes first": lateEarlierID,
		"a taken over partition goes on":           partitionTakenOver,
		"a long partition name":                    longPartition,
		"concurrent workers":                       concurrentWorkers,
		"enqueue races settle":                     enqueueRacesSettle,
		"groups share the places":                  groupsShare,
		"members share those of their group":       membersShare,
		"guests come behind and are not forgotten": guestsBehind,
		"all places until others wait":             allSlotsUntilOthersWait,
		"a group that is away holds no place":      limitHolds,
		"more lanes than one look takes in":        manyShares,
		"a bound for each member":                  memberBound,
		"seats obey the shares":                    reservationsShare,
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &probe{T: t, Bench: open(t)})
		})
	}
}

// probe is a store under test.
type probe struct {
	*testing.T
	Bench
}

func (p *probe) pass(d time.Duration) {
	p.Helper()
	if err := p.Pass(p.Context(), d); err != nil {
		p.Fatalf("let time go by: %v", err)
	}
}

// NewID makes a job id; later ids are greater.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

func (p *probe) add(jobs ...queue.NewJob) {
	p.Helper()
	for i := range jobs {
		if jobs[i].ID == "" {
			jobs[i].ID = NewID()
		}
		if jobs[i].Kind == "" {
			jobs[i].Kind = "work"
		}
	}

	if err := p.Enqueue(p.Context(), jobs...); err != nil {
		p.Fatalf("enqueue: %v", err)
	}
}

func (p *probe) claim(kind string, limit int) []queue.Job {
	p.Helper()
	jobs, err := Claim(p.Context(), p.Store, "tester", kind, limit, 15*time.Second)
	if err != nil {
		p.Fatalf("claim: %v", err)
	}
	return jobs
}

func (p *probe) settle(job queue.Job, outcome queue.Outcome) {
	p.Helper()
	if err := p.Store.Settle(p.Context(), job.Lease, outcome); err != nil {
		p.Fatalf("settle %s: %v", job.Payload, err)
	}
}

// expect claims all and compares payloads.
func (p *probe) expect(want ...string) []queue.Job {
	p.Helper()
	jobs := p.claim("work", 100)
	got := make([]string, 0, len(jobs))
	for _, job := range jobs {
		got = append(got, job.Payload)
	}

	if diff := cmp.Diff(want, got); len(want)+len(got) > 0 && diff != "" {
		p.Fatalf("claimed (-want +got):\n%s", diff)
	}
	return jobs
}

func (p *probe) lost(err error) {
	p.Helper()
	if !errors.Is(err, queue.ErrLeaseLost) {
		p.Fatalf("got %v, want ErrLeaseLost", err)
	}
}

func dueInOrder(t *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "later", RunAt: time.Now().Add(time.Minute)})
	for i := range 5 {
		p.add(queue.NewJob{Payload: fmt.Sprint(i), RunAt: time.Now().Add(time.Duration(i-5) * time.Second)})
	}

	first := p.claim("work", 2)
	if len(first) != 2 || first[0].Payload != "0" || first[1].Payload != "1" {
		t.Fatalf("claimed %+v, want the two that are due longest", first)
	}

	p.expect("2", "3", "4")
	p.pass(time.Minute)
	p.settle(first[0], queue.Outcome{Kind: queue.Done})
	jobs := p.claim("work", 1)
	if len(jobs) != 1 {
		t.Fatalf("claimed %+v", jobs)
	}
}

func kindsApart(t *testing.T, p *probe) {
	p.add(queue.NewJob{Kind: "other", Partition: "same", Payload: "other"}, queue.NewJob{Partition: "same", Payload: "mine"})
	p.expect("mine")
	if jobs := p.claim("other", 9); len(jobs) != 1 || jobs[0].Kind != "other" || jobs[0].Partition != "same" {
		t.Fatalf("claimed %+v", jobs)
	}
}

func nextDue(t *testing.T, p *probe) {
	check := func(want time.Duration) {
		t.Helper()
		got, found, err := p.Store.NextDue(t.Context(), "work")
		// The machine may set its clock back by a little between two readings of it.
		if err != nil || !found || got > want+time.Second || got < want-time.Minute {
			t.Fatalf("next due in %v, %t, %v; want %v", got, found, err, want)
		}
	}

	if _, found, err := p.Store.NextDue(t.Context(), "work"); err != nil || found {
		t.Fatalf("an empty store has something due: %t, %v", found, err)
	}

	p.add(queue.NewJob{RunAt: time.Now().Add(10 * time.Hour)})
	check(10 * time.Hour)
	p.pass(5 * time.Hour)
	check(5 * time.Hour)
	p.add(queue.NewJob{Payload: "a", Partition: "p"})
	p.add(queue.NewJob{Payload: "b", Partition: "p"})
	p.expect("a")
	check(15 * time.Second) // the end of the lease, not the job that waits behind it
	p.pass(16 * time.Second)
	check(0)
}

func leased(t *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "a"})
	jobs := p.expect("a")
	if jobs[0].Attempt != 1 || jobs[0].Lease.JobID != jobs[0].ID || jobs[0].CreatedAt.IsZero() {
		t.Fatalf("claimed %+v", jobs[0])
	}
	p.expect()
	p.pass(14 * time.Second)
	p.expect()
}

func takenOver(t *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "a"})
	first := p.expect("a")[0]
	p.pass(16 * time.Second)
	second := p.expect("a")[0]
	if second.Attempt != 2 || second.Lease.Fence <= first.Lease.Fence || second.LastError == "" {
		t.Fatalf("taken over as %+v after %+v", second, first)
	}

	p.lost(p.Store.Settle(t.Context(), first.Lease, queue.Outcome{Kind: queue.Done}))
	if held, _, err := p.Store.Extend(t.Context(), []queue.Lease{first.Lease}, time.Hour); err != nil || len(held) != 0 {
		t.Fatalf("extended a lost lease: %v, %v", held, err)
	}

	p.settle(second, queue.Outcome{Kind: queue.Done})
	p.lost(p.Store.Settle(t.Context(), second.Lease, queue.Outcome{Kind: queue.Done}))
}

func expiredButHeld(_ *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "a"})
	job := p.expect("a")[0]
	p.pass(time.Hour)
	p.settle(job, queue.Outcome{Kind: queue.Done})
	p.expect()
}

func extended(t *testing.T, p *probe) {
	var leases []queue.Lease
	for range 300 {
		p.add(queue.NewJob{Payload: "a"})
	}

	for range 3 {
		for _, job := range p.claim("work", 100) {
			leases = append(leases, job.Lease)
		}
	}

	gone := leases[7]
	if err := p.Store.Settle(t.Context(), gone, queue.Outcome{Kind: queue.Done}); err != nil {
		t.Fatal(err)
	}

	held, _, err := p.Store.Extend(t.Context(), leases, time.Hour)
	if err != nil || len(held) != 299 {
		t.Fatalf("held %d, %v; want 299", len(held), err)
	}

	for _, lease := range held {
		if lease == gone {
			t.Fatal("a settled job's lease is still held")
		}
	}

	p.pass(time.Minute)
	p.expect()
}

func outcomes(t *testing.T, p *probe) {
	p.add(queue.NewJob{Payload: "a"})
	job := p.expect("a")[0]
	p.settle(job, queue.Outcome{Kind: queue.Retry, At: time.Now().Add(time.Minute), Reason: "peer said 500"})
	p.lost(p.Store.Settle(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}))
	p.expect()
	p.pass(time.Minute)
	job = p.expect("a")[0]
	if job.Attempt != 2 || job.LastError != "peer said 500" {
		t.Fatalf("after retry: %+v", job)
	}

	p.settle(job, queue.Outcome{Kind: queue.Snooze, At: time.Now()})
	job = p.expect("a")[0]
	if job.Attempt != 2 {
		t.Fatalf("after snooze: %+v", job)
	}

	p.settle(job, queue.Outcome{Kind: queue.Dead, Reason: "no such host"})
	p.pass(time.Hour)
	p.expect()
	p.lost(p.Store.Settle(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}))
}

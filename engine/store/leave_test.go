package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// leaving is a partition with three jobs, of which the first one runs.
type leaving struct {
	*store.Store
	partition string
	turn      exchange.TurnRecord
	ids       []string
	first     queue.Job
}

// occupy stores an acknowledged turn and three jobs of one partition, the second of which delivers the acknowledgement, and claims the first.
func occupy(t *testing.T, s *store.Store, round int) leaving {
	t.Helper()
	ctx, now := t.Context(), time.Now()
	l := leaving{Store: s, partition: fmt.Sprint("partition ", round), turn: sample(int64(round)), ids: []string{newID(), newID(), newID()}}
	reply := exchange.Reply{
		ID: newID(), TurnID: l.turn.ID, Agent: "echo", Channel: l.turn.Channel, Message: l.turn.Message, Notice: exchange.NoticeAck, CreatedAt: now,
		Response: normalized.Response{InReplyTo: l.turn.Message.ID, ThreadID: l.turn.ThreadID, Parts: []normalized.Part{normalized.Text("one moment")}},
	}
	record := delivery.Record{
		ID: l.ids[1], TurnID: l.turn.ID, ReplyID: reply.ID, Agent: "echo", NativeID: "ack " + reply.ID, Key: "peer.example",
		Address: "alice@peer.example", State: delivery.StatePending, CreatedAt: now, UpdatedAt: now,
	}

	if err := accept(ctx, s, l.turn); err != nil {
		t.Fatal(err)
	}
	err := s.InTx(ctx, func(tx *store.Tx) error {
		if stored, err := tx.InsertAck(ctx, reply, record.NativeID); err != nil || !stored {
			return fmt.Errorf("acknowledgement stored: %v, %w", stored, err)
		}
		if err := tx.InsertDelivery(ctx, record); err != nil {
			return err
		}
		for _, id := range l.ids {
			if err := tx.Enqueue(ctx, queue.NewJob{ID: id, Kind: "work", Partition: l.partition, Payload: id}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	l.first = claimOne(t, s)
	return l
}

// removers are the ways in which a job that waits leaves its partition.
var removers = map[string]func(ctx context.Context, l leaving, id string) error{
	"cancelled by the operator": func(ctx context.Context, l leaving, id string) error { return l.CancelJob(ctx, id) },

	"of a withdrawn answer": func(ctx context.Context, l leaving, id string) error {
		return l.InTx(ctx, func(tx *store.Tx) error {
			_, err := tx.RemoveJob(ctx, "work", l.partition, id)
			return err
		})
	},

	"of an overtaken acknowledgement": func(ctx context.Context, l leaving, _ string) error {
		return l.InTx(ctx, func(tx *store.Tx) error { return tx.CancelAck(ctx, l.turn.ID, time.Now()) })
	},

	"of an erased message": func(ctx context.Context, l leaving, _ string) error {
		e := store.Erasure{Receipt: store.Receipt{ID: newID()}}
		err := l.InTx(ctx, func(tx *store.Tx) error {
			return tx.NoteErasure(ctx, e.Receipt.ID, store.EraseRemove, l.turn.ID)
		})
		if err != nil {
			return err
		}
		return l.RemoveErased(ctx, e, "hash")
	},
}

// TestNextJobRunsWhenTwoLeaveTogether: of three jobs of a partition the first ends while the second is removed, in calls at the same time. The
// third one can be claimed then, whichever of the two commits first.
func TestNextJobRunsWhenTwoLeaveTogether(t *testing.T) {
	rounds := map[string]int{"sqlite": 20, "postgres": 400}
	for name, url := range databases {
		for way, remove := range removers {
			for end, outcome := range map[string]queue.Outcome{"done": {Kind: queue.Done}, "dead": {Kind: queue.Dead, Reason: "gone"}} {
				t.Run(strings.Join([]string{name, end, way}, "/"), func(t *testing.T) {
					t.Parallel()
					s := open(t, url(t))
					for round := range rounds[name] {
						l := occupy(t, s, round)
						both(t, func() error { return s.Queue().Settle(t.Context(), l.first.Lease, outcome) },
							func() error { return remove(t.Context(), l, l.ids[1]) })

						job := claimOne(t, s)
						if job.ID != l.ids[2] {
							t.Fatalf("round %d: claimed %s, want the third job", round, job.ID)
						}
						if err := s.Queue().Settle(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// both calls two functions at the same time.
func both(t *testing.T, calls ...func() error) {
	t.Helper()
	var group sync.WaitGroup
	begin := make(chan struct{})
	for _, call := range calls {
		group.Go(func() {
			<-begin
			if err := call(); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	group.Wait()
}

// TestJobsOfManyPartitionsLeaveWithoutDeadlock: two transactions remove jobs of the same partitions, which they were given in opposite order.
func TestJobsOfManyPartitionsLeaveWithoutDeadlock(t *testing.T) {
	s := open(t, databases["postgres"](t))
	before := metric(t, "inbox_store_repeats_total")
	for round := range 200 {
		var ids [2][]string
		err := s.InTx(t.Context(), func(tx *store.Tx) error {
			for partition := range 8 {
				for side := range ids {
					job := queue.NewJob{ID: newID(), Kind: "work", Partition: fmt.Sprint(round, " ", partition)}
					if err := tx.Enqueue(t.Context(), job); err != nil {
						return err
					}
					ids[side] = append(ids[side], job.ID)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		remove := func(ids []string) func() error {
			return func() error {
				return s.InTx(t.Context(), func(tx *store.Tx) error { return tx.RemoveWaiting(t.Context(), ids...) })
			}
		}
		slices.Reverse(ids[1])
		both(t, remove(ids[0]), remove(ids[1]))
	}
	if again := metric(t, "inbox_store_repeats_total") - before; again != 0 {
		t.Errorf("%v transactions ran again", again)
	}
}

// TestStrandedJobIsPromoted: a blocked job whose predecessor left without promoting it, as nodes of earlier versions could leave one, is found.
func TestStrandedJobIsPromoted(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			options := store.Options{URL: url(t), DataDir: t.TempDir()}
			s := openWith(t, options)
			l := occupy(t, s, 1)
			before := metric(t, "inbox_jobs_stranded_total")
			find := func(want float64, when string) {
				t.Helper()
				if _, err := openWith(t, options).Queue().Revive(t.Context(), "other"); err != nil { // a node that starts looks at once
					t.Fatal(err)
				}
				if found := metric(t, "inbox_jobs_stranded_total") - before; found != want {
					t.Errorf("%s: %v stranded jobs found, want %v", when, found, want)
				}
			}

			find(0, "behind a running job")
			if err := s.Execute(t.Context(), `DELETE FROM jobs WHERE id = $1`, l.ids[0]); err != nil {
				t.Fatal(err)
			}
			find(1, "behind none")
			find(1, "again")
			if job := claimOne(t, s); job.ID != l.ids[1] {
				t.Errorf("claimed %s, want the second job", job.ID)
			}
		})
	}
}

// TestRetryOfABlockedJob: it names the job that precedes it, or promotes the job when no other one does.
func TestRetryOfABlockedJob(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t))
			l := occupy(t, s, 1)
			err := s.RetryJob(t.Context(), l.ids[2])
			if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), l.ids[0]) || !strings.Contains(err.Error(), "running") {
				t.Errorf("behind a running job: %v", err)
			}

			if err := s.Execute(t.Context(), `DELETE FROM jobs WHERE id IN ($1, $2)`, l.ids[0], l.ids[1]); err != nil {
				t.Fatal(err)
			}
			if err := s.RetryJob(t.Context(), l.ids[2]); err != nil {
				t.Errorf("behind none: %v", err)
			}
			if job := claimOne(t, s); job.ID != l.ids[2] {
				t.Errorf("claimed %s, want the third job", job.ID)
			}
		})
	}
}

// metric returns the value of a counter without labels.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

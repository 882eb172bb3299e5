package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

var transactionCases = map[string]func(*testing.T, *probe){
	"an error undoes everything":             errorUndoes,
	"failures among successes":               mixedTransactions,
	"a panic is an error":                    panicIsError,
	"an ended context":                       endedContext,
	"an empty transaction":                   func(_ *testing.T, p *probe) { p.tx(func(pipeline.Tx) error { return nil }) },
	"a job settled with the work":            settledWithWork,
	"a lost lease undoes the work":           lostLease,
	"notifications come after commits alone": notifications,
	"ping":                                   func(t *testing.T, p *probe) { p.ok(p.Records.Ping(t.Context())) },
}

var errOurs = errors.New("ours")

func errorUndoes(t *testing.T, p *probe) {
	turn := p.message("m1")
	err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
		_, inserted, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: "d", Body: []byte("x")})
		if err != nil || !inserted {
			t.Errorf("insert: %v, %v", inserted, err)
		}
		if err := tx.Enqueue(t.Context(), queue.NewJob{ID: turn.ID, Kind: "turn", Payload: turn.ID}); err != nil {
			t.Error(err)
		}
		return errOurs
	})
	if !errors.Is(err, errOurs) {
		t.Fatalf("got %v, want the caller's own error", err)
	}

	_, err = p.Pipeline.Turn(t.Context(), turn.ID)
	p.missing(err)
	_, err = p.Records.Original(t.Context(), "d")
	p.missing(err)

	if events := p.timeline(turn.ID); len(events) != 0 {
		t.Errorf("timeline %v", events)
	}
	if jobs := p.claim("turn"); len(jobs) != 0 {
		t.Errorf("jobs %v", jobs)
	}

	p.insert(turn)
}

func (p *probe) claim(kind string) []queue.Job {
	p.Helper()
	jobs, err := queuetest.Claim(p.Context(), p.Queue, "test", kind, 100, time.Minute)
	p.ok(err)
	return jobs
}

// mixedTransactions runs failing and succeeding work side by side: it may share commits, and must not share fates.
func mixedTransactions(t *testing.T, p *probe) {
	turns := make([]exchange.TurnRecord, 60)
	for i := range turns {
		turns[i] = p.message(newID())
	}

	var group sync.WaitGroup
	for i, turn := range turns {
		group.Go(func() {
			err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
				_, inserted, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
				switch {
				case err != nil || !inserted:
					t.Errorf("insert: %v, %v", inserted, err)
				case i%3 == 0:
					return errOurs
				case i%5 == 0:
					panic("ours")
				}
				return err
			})
			if failed := i%3 == 0 || i%5 == 0; (err != nil) != failed {
				t.Errorf("turn %d: %v", i, err)
			}
		})
	}

	group.Wait()
	for i, turn := range turns {
		_, err := p.Pipeline.Turn(t.Context(), turn.ID)
		if failed := i%3 == 0 || i%5 == 0; failed != fault.Is(err, fault.NotFound) {
			t.Errorf("turn %d: %v", i, err)
		}
	}
}

func panicIsError(t *testing.T, p *probe) {
	turn := p.message("m1")
	err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
		if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{}); err != nil {
			t.Error(err)
		}
		panic("no such luck")
	})
	if err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Fatalf("got %v", err)
	}
	p.insert(turn)
}

func endedContext(t *testing.T, p *probe) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Pipeline.InTx(ctx, func(pipeline.Tx) error {
		t.Error("work ran with an ended context")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func settledWithWork(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.tx(func(tx pipeline.Tx) error {
		if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{}); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), queue.NewJob{ID: turn.ID, Kind: "turn", Partition: "p", Payload: turn.ID})
	})

	job := p.claim("turn")[0]
	p.tx(func(tx pipeline.Tx) error {
		if err := tx.SettleJob(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}

		moved, err := tx.MoveTurn(t.Context(), pipeline.Move{
			ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateAnswered, At: p.now,
		})
		if !moved {
			t.Error("not moved")
		}
		return err
	})

	if state := p.turn(turn.ID).State; state != exchange.StateAnswered {
		t.Errorf("state %s", state)
	}
	if jobs := p.claim("turn"); len(jobs) != 0 {
		t.Errorf("jobs %v", jobs)
	}
}

func lostLease(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
		if _, err := tx.MoveTurn(t.Context(), pipeline.Move{
			ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateAnswered, At: p.now,
		}); err != nil {
			return err
		}
		return tx.SettleJob(t.Context(), queue.Lease{JobID: "gone", Fence: 1}, queue.Outcome{Kind: queue.Done})
	})
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Fatalf("got %v, want ErrLeaseLost", err)
	}

	if state := p.turn(turn.ID).State; state != exchange.StateAccepted {
		t.Errorf("state %s", state)
	}
}

func notifications(t *testing.T, p *probe) {
	turn := p.message("m1")
	failing := true
	work := func(tx pipeline.Tx) error {
		if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{}); err != nil {
			return err
		}

		for range 3 { // one transaction says everything once
			if err := tx.Enqueue(t.Context(), queue.NewJob{ID: newID(), Kind: "turn"}); err != nil {
				return err
			}
		}

		if failing {
			return errOurs
		}
		return nil
	}

	if err := p.Pipeline.InTx(t.Context(), work); !errors.Is(err, errOurs) {
		t.Fatal(err)
	}

	if got := p.Notified(); len(got) != 0 {
		t.Errorf("notified %v of a transaction that was undone", got)
	}

	failing = false
	p.tx(work)

	if diff := cmp.Diff([]string{"turn " + turn.ID, "job turn"}, p.Notified()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

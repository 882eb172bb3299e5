package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

var leasedCases = map[string]func(*testing.T, *probe){
	"nobody claims a job that was stored as leased": storedLeased,
	"who is alone frees what the dead had":          freedLeases,
	"an answer ends the turn":                       answerTurn,
}

func storedLeased(t *testing.T, p *probe) {
	first, second := newID(), newID()
	job := func(id string) queue.NewJob { return queue.NewJob{ID: id, Kind: "work", Partition: "p", Payload: id} }
	p.tx(func(tx pipeline.Tx) error {
		return tx.EnqueueLeased(t.Context(), job(first), "here", time.Minute)
	})

	p.tx(func(tx pipeline.Tx) error { return tx.Enqueue(t.Context(), job(second)) })
	claim := func() []queue.Job {
		jobs, err := queuetest.Claim(t.Context(), p.Queue, "there", "work", 9, time.Minute)
		p.ok(err)
		return jobs
	}

	if jobs := claim(); len(jobs) != 0 {
		t.Errorf("claimed %+v", jobs)
	}

	lease := queue.Lease{JobID: first, Fence: 1}
	held, _, err := p.Queue.Extend(t.Context(), []queue.Lease{lease}, 2*time.Minute)
	p.ok(err)

	if len(held) != 1 || held[0] != lease {
		t.Errorf("held %+v", held)
	}
	if jobs := claim(); len(jobs) != 0 {
		t.Errorf("claimed %+v after the lease was prolonged", jobs)
	}

	_, _, err = p.Queue.Extend(t.Context(), []queue.Lease{lease}, -time.Second)
	p.ok(err)
	taken := claim() // its process is gone
	if len(taken) != 1 || taken[0].ID != first || taken[0].Attempt != 2 {
		t.Fatalf("after its lease %+v", taken)
	}

	done := queue.Outcome{Kind: queue.Done}
	if err := p.Queue.Settle(t.Context(), lease, done); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("settled with the lost lease: %v", err)
	}

	p.ok(p.Queue.Settle(t.Context(), taken[0].Lease, done))
	if jobs := claim(); len(jobs) != 1 || jobs[0].ID != second {
		t.Errorf("then came %+v", jobs)
	}
}

func freedLeases(t *testing.T, p *probe) {
	now := time.Now().UTC()
	running, claimed, later, next := newID(), newID(), newID(), newID()
	p.tx(func(tx pipeline.Tx) error {
		job := queue.NewJob{ID: running, Kind: "work", Partition: "p", Payload: "running"}
		return errors.Join(tx.EnqueueLeased(t.Context(), job, "dead", time.Hour),
			tx.Enqueue(t.Context(), queue.NewJob{ID: claimed, Kind: "work", Payload: "claimed"}),
			tx.Enqueue(t.Context(), queue.NewJob{ID: later, Kind: "work", Payload: "later", RunAt: now.Add(time.Hour)}))
	})

	p.tx(func(tx pipeline.Tx) error {
		return tx.Enqueue(t.Context(), queue.NewJob{ID: next, Kind: "work", Partition: "p", Payload: "next"})
	})

	claim := func(owner string) (names []string) {
		jobs, err := queuetest.Claim(t.Context(), p.Queue, owner, "work", 9, time.Hour)
		p.ok(err)
		for _, job := range jobs {
			names = append(names, job.Payload)
		}
		return names
	}

	if got := claim("dead"); !slices.Equal(got, []string{"claimed"}) {
		t.Fatalf("claimed %q", got)
	}

	p.ok(p.FreeLeases(t.Context()))
	if got := claim("living"); !slices.Equal(got, []string{"running", "claimed"}) {
		t.Errorf("after the death: %q", got)
	}

	err := p.Queue.Settle(t.Context(), queue.Lease{JobID: running, Fence: 1}, queue.Outcome{Kind: queue.Done})
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("settled with the lease of the dead: %v", err)
	}
}

func answerTurn(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	answer := func(from ...string) (reply exchange.Reply, moved bool, err error) {
		reply = p.reply(turn)
		err = p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) (err error) {
			moved, err = tx.AnswerTurn(t.Context(), pipeline.Move{
				ID: turn.ID, From: from, To: exchange.StateAnswered, Attempt: 1, At: reply.CreatedAt,
			}, reply, "note 1")
			return err
		})
		return reply, moved, err
	}

	if _, moved, err := answer(exchange.StateRunning); moved || err != nil {
		t.Errorf("answered in the wrong state: %t, %v", moved, err)
	}
	if stored := p.turn(turn.ID); stored.ReplyID != "" || stored.Response != nil {
		t.Errorf("nothing moved, and the turn is %+v", stored)
	}

	reply, moved, err := answer(exchange.StateAccepted, exchange.StateRunning)
	p.ok(err)
	stored := p.turn(turn.ID)
	if !moved || stored.State != exchange.StateAnswered || stored.ReplyID != reply.ID || stored.Response == nil {
		t.Fatalf("moved %t, turn %+v", moved, stored)
	}

	p.same(reply.Response, *stored.Response)
	if _, nativeID, err := p.Records.Reply(t.Context(), reply.ID); err != nil || nativeID != "note 1" {
		t.Errorf("reply %q, %v", nativeID, err)
	}
	if rows := p.timeline(turn.ID); len(rows) != 2 || rows[1] != `2 turn.answered {"attempt":1}` {
		t.Errorf("timeline %q", rows)
	}
	if _, _, err := answer(exchange.StateAnswered); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second answer: %v, want fault.Conflict", err)
	}
	if got := p.turn(turn.ID).ReplyID; got != reply.ID {
		t.Errorf("after a second answer the reply is %s", got)
	}
}

package explore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// operation is what one node does.
type operation struct {
	name string
	do   func(ctx context.Context, n *node, s *scene) error
}

// stage is where operations of a kind meet: what is there before, and what must hold afterwards in addition to what always must.
type stage struct {
	name  string
	set   func(s *scene)
	check func(s *scene)
}

// Jobs of one partition: the first runs, two wait for it, and the second is that of an acknowledgement.
var jobs = stage{
	name: "partition",
	set: func(s *scene) {
		s.accepted("hello")
		s.ids = []string{newID(), newID(), newID()}
		ctx, now := s.Context(), time.Now()
		reply := exchange.Reply{
			ID: newID(), TurnID: s.turn.ID, Agent: "echo", Channel: s.turn.Channel, Message: s.turn.Message, Notice: exchange.NoticeAck, CreatedAt: now,
			Response: normalized.Response{InReplyTo: s.turn.Message.ID, ThreadID: s.turn.ThreadID, Parts: []normalized.Part{normalized.Text("one moment")}},
		}
		record := delivery.Record{
			ID: s.ids[1], TurnID: s.turn.ID, ReplyID: reply.ID, Agent: "echo", Channel: s.turn.Channel, NativeID: "ack " + reply.ID, Key: "peer.test",
			Address: "ana@peer.test", State: delivery.StatePending, CreatedAt: now, UpdatedAt: now,
		}
		s.ok(s.nodes[0].InTx(ctx, func(tx *store.Tx) error {
			if stored, err := tx.InsertAck(ctx, reply, record.NativeID); err != nil || !stored {
				return fmt.Errorf("acknowledgement stored: %v, %w", stored, err)
			}
			if err := tx.InsertDelivery(ctx, record); err != nil {
				return err
			}
			for _, id := range s.ids {
				if err := tx.Enqueue(ctx, queue.NewJob{ID: id, Kind: "work", Partition: s.name, Payload: id}); err != nil {
					return err
				}
			}
			return nil
		}))
		s.job = s.claim("work")[0]
	},

	// Workers can empty the partition.
	check: func(s *scene) {
		if err := s.nodes[0].Queue().Settle(s.Context(), s.job.Lease, queue.Outcome{Kind: queue.Done}); err != nil && !refused(err) {
			s.ok(err)
		}
		for {
			claimed := s.claim("work")
			if len(claimed) == 0 {
				break
			}
			for _, job := range claimed {
				if err := s.nodes[0].Queue().Settle(s.Context(), job.Lease, queue.Outcome{Kind: queue.Done}); err != nil && !refused(err) {
					s.ok(err)
				}
			}
		}
		if left := s.count(`SELECT COUNT(*) FROM jobs WHERE partition_of = $1 AND state NOT IN ('dead', 'running')`, s.name); left > 0 {
			s.wrongf("%d jobs of the partition are never claimed", left)
		}
	},
}

func settle(outcome queue.Outcome) func(context.Context, *node, *scene) error {
	return func(ctx context.Context, n *node, s *scene) error { return n.Queue().Settle(ctx, s.job.Lease, outcome) }
}

var (
	endJob     = operation{"end the running job", settle(queue.Outcome{Kind: queue.Done})}
	buryJob    = operation{"bury the running job", settle(queue.Outcome{Kind: queue.Dead, Reason: "gone"})}
	releaseJob = operation{"release the running job", settle(queue.Outcome{Kind: queue.Released})}

	cancelJob = operation{"cancel the second job", func(ctx context.Context, n *node, s *scene) error {
		if err := s.cancelSecond(ctx, n); err != nil {
			return err
		}
		return n.CancelJob(ctx, s.ids[1])
	}}

	withdrawJob = operation{"withdraw the second job", func(ctx context.Context, n *node, s *scene) error {
		return n.InTx(ctx, func(tx *store.Tx) error {
			moved, err := tx.MoveDelivery(ctx, delivery.Move{
				ID: s.ids[1], From: []string{delivery.StatePending}, To: delivery.StateCancelled, At: time.Now(),
			})
			if err != nil || !moved {
				return err
			}
			_, err = tx.RemoveJob(ctx, "work", s.name, s.ids[1])
			return err
		})
	}}

	overtakeAck = operation{"cancel the acknowledgement", func(ctx context.Context, n *node, s *scene) error {
		return n.InTx(ctx, func(tx *store.Tx) error { return tx.CancelAck(ctx, s.turn.ID, time.Now()) })
	}}

	eraseTurn = operation{"erase the message", func(ctx context.Context, n *node, s *scene) error {
		if err := s.cancelSecond(ctx, n); err != nil { // as the stage before does
			return err
		}
		e := store.Erasure{Receipt: store.Receipt{ID: newID()}}
		if _, err := s.control.ExecContext(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
			VALUES ($1, $2, '', 0, 0, '', '', '{"counts":{}}')`, e.Receipt.ID, store.EraseRemove); err != nil {
			return err
		}
		if _, err := s.control.ExecContext(ctx, `INSERT INTO erasure_turns (erasure_id, turn_id) VALUES ($1, $2)`, e.Receipt.ID, s.turn.ID); err != nil {
			return err
		}
		return n.RemoveErased(ctx, e, "hash")
	}}

	enqueueJob = operation{"enqueue a fourth job", func(ctx context.Context, n *node, s *scene) error {
		return n.InTx(ctx, func(tx *store.Tx) error {
			return tx.Enqueue(ctx, queue.NewJob{ID: newID(), Kind: "work", Partition: s.name, Payload: "4"})
		})
	}}

	retryJob = operation{"retry the second job", func(ctx context.Context, n *node, s *scene) error { return n.RetryJob(ctx, s.ids[1]) }}

	claimJobs = operation{"claim jobs", func(ctx context.Context, n *node, s *scene) error {
		if _, err := n.Queue().Revive(ctx, "work"); err != nil {
			return err
		}
		_, err := n.Queue().Claim(ctx, queue.Claim{
			Owner: "other", Kind: "work", Lease: time.Microsecond, Takes: []queue.Take{{Share: queue.NewJob{}.Share(), Count: 10}},
		})
		return err
	}}
)

// A message that the first node accepted and a worker of it takes.
var turns = stage{
	name: "turn",
	set:  func(s *scene) { s.accepted("hello") },
	check: func(s *scene) {
		if s.failures[1] != nil {
			return
		}
		if begun := s.at(0, "agent: "); begun > s.at(1, "COMMIT") {
			s.wrongf("the agent was called after the turn had been cancelled")
		}
		if state := s.state(); state != exchange.StateCancelled {
			s.wrongf("the turn was cancelled, and is %s", state)
		}
	},
}

// The same message, of which the agent demands consent.
var demanding = stage{name: "turn with a demand", set: func(s *scene) { s.accepted(sayDemand) }, check: func(*scene) {}}

// A message whose sender edits it while its run lasts: what leaves after the edit has the new words.
var edited = stage{name: "edited turn", set: func(s *scene) { s.accepted("old words") }, check: checkEdit}

// The same, of which the agent asks another agent.
var asking = stage{name: "edited turn with a question", set: func(s *scene) { s.accepted(sayAsk) }, check: checkEdit}

func checkEdit(s *scene) {
	if s.failures[1] != nil || s.at(1, "COMMIT") > s.at(0, "COMMIT") {
		return
	}
	words := s.turn.Message.Parts[0].Content
	if s.count(`SELECT COUNT(*) FROM dispatches WHERE turn_id = $1 AND call LIKE $2`, s.turn.ID, "%"+words+"%") > 0 {
		s.wrongf("another agent was asked with the old words after the edit")
	}
	if s.count(`SELECT COUNT(*) FROM replies WHERE turn_id = $1 AND response LIKE $2`, s.turn.ID, "%"+words+"%") > 0 {
		s.wrongf("the old words were answered after the edit")
	}
}

// A turn that waits for consent.
var waiting = stage{name: "waiting turn", set: func(s *scene) { s.answered(sayDemand) }, check: func(*scene) {}}

func (s *scene) state() (state string) {
	s.Helper()
	s.ok(s.control.QueryRowContext(s.Context(), `SELECT state FROM turns WHERE id = $1`, s.turn.ID).Scan(&state))
	return state
}

var (
	runTurn    = operation{"run the turn", func(ctx context.Context, n *node, s *scene) error { return work(ctx, n, n.pipeline.Run, s.job) }}
	cancelTurn = operation{"cancel the turn", func(ctx context.Context, n *node, s *scene) error {
		_, err := n.pipeline.Cancel(ctx, s.turn.ID, "not wanted")
		return err
	}}

	amend = operation{"edit the message", func(ctx context.Context, n *node, s *scene) error {
		return n.pipeline.Amend(ctx, "echo", s.turn.Message.ID, s.turn.Principal, []normalized.Part{normalized.Text("new words")})
	}}

	expireDemand = operation{"expire the demand", func(ctx context.Context, n *node, s *scene) error {
		issued, found, err := n.DemandOfTurn(ctx, s.turn.ID)
		if err != nil || !found {
			return err
		}
		issued.Status, issued.UpdatedAt = policypart.StatusExpired, time.Now()
		return n.pipeline.Settle(ctx, demand.Ending{
			Issuance: issued, From: []string{policypart.StatusIssued}, State: exchange.StateRefused,
			Response: &normalized.Response{Parts: []normalized.Part{normalized.Text("the time is over")}},
		})
	}}

	resumeTurn = operation{"grant the demand", func(ctx context.Context, n *node, s *scene) error {
		issued, found, err := n.DemandOfTurn(ctx, s.turn.ID)
		if err != nil || !found {
			return err
		}
		issued.Status, issued.UpdatedAt, issued.Resolution = policypart.StatusResolved, time.Now(), &policypart.Resolution{}
		return n.pipeline.Settle(ctx, demand.Ending{Issuance: issued, From: []string{policypart.StatusIssued}, Resume: true})
	}}
)

// cancelSecond cancels the delivery of the second job, whose kind is one of this test.
func (s *scene) cancelSecond(ctx context.Context, n *node) error {
	return n.InTx(ctx, func(tx *store.Tx) error {
		_, err := tx.MoveDelivery(ctx, delivery.Move{
			ID: s.ids[1], From: []string{delivery.StatePending}, To: delivery.StateCancelled, At: time.Now(),
		})
		return err
	})
}

// An answer whose delivery a worker of the first node takes. An attempt that had begun when the answer changed may bring the old words, if
// the peer is told of the change afterwards. After a cancellation nothing is sent.
var deliveries = stage{
	name: "delivery",
	set:  func(s *scene) { s.answered("old words") },
	check: func(s *scene) {
		changed := s.at(1, "COMMIT")
		sent := s.at(0, "deliver: ")
		told := s.count(`SELECT COUNT(*) FROM jobs WHERE kind = $1 AND partition_of = $2`, delivery.SpreadKind, s.turn.ReplyID) > 0
		if s.failures[1] == nil && sent > changed && strings.HasSuffix(s.steps[sent].what, "old words") && !told {
			s.wrongf("the old words were sent after the answer or its delivery had been changed")
		}
	},
}

var (
	deliver        = operation{"deliver", func(ctx context.Context, n *node, s *scene) error { return work(ctx, n, n.delivery.Run, s.job) }}
	cancelDelivery = operation{"cancel the delivery", func(ctx context.Context, n *node, s *scene) error { return n.delivery.Cancel(ctx, s.sent.ID) }}
	withdraw       = operation{"withdraw the answer", func(ctx context.Context, n *node, s *scene) error {
		return n.delivery.Delete(ctx, s.turn.ReplyID, "test")
	}}
	edit = operation{"edit the answer", func(ctx context.Context, n *node, s *scene) error {
		return n.delivery.Edit(ctx, s.turn.ReplyID, "test", "new words", "")
	}}
)

// Nothing is there yet.
var nothing = stage{name: "new task", set: func(*scene) {}, check: func(*scene) {}}

func accept(number int) operation {
	return operation{fmt.Sprintf("accept message %d of a task", number), func(ctx context.Context, n *node, s *scene) error {
		in := s.message(number, "hello")
		in.Reference = "task " + s.name
		_, err := n.pipeline.Receive(ctx, in)
		return err
	}}
}

// A turn that has failed, of whose task no one was told.
var failed = stage{
	name: "failed turn",
	set:  func(s *scene) { s.answered(sayFail) },
	check: func(s *scene) {
		if s.failures[0] == nil && s.failures[1] == nil && s.at(0, "COMMIT") > s.at(1, "COMMIT") {
			s.wrongf("the turn was given up after it had been accepted again")
		}
	},
}

var (
	giveUp = operation{"give the turn up", func(ctx context.Context, n *node, s *scene) error {
		return n.pipeline.GiveUp(ctx, s.turn.ID, exchange.Claim{Namespace: "test", Key: s.turn.ID, Value: []byte("given up")}, "too late", time.Now())
	}}
	retryTurn = operation{"retry the turn", func(ctx context.Context, n *node, s *scene) error { return n.pipeline.Retry(ctx, s.turn.ID, "test") }}
)

// A document that one removes while others claim its place.
var documents = stage{
	name: "document",
	set: func(s *scene) {
		s.ok(s.nodes[0].State().Put(s.Context(), "test", s.name, []byte("before"), time.Time{}))
	},
	check: func(s *scene) {
		value, found, err := s.nodes[0].State().Get(s.Context(), "test", s.name)
		s.ok(err)
		for i, failure := range s.failures {
			if owner := fmt.Sprint("owner ", i); failure == nil && s.claims[i] && (!found || string(value) != owner) && s.at(1-i, "DELETE") < 0 {
				s.wrongf("%s has the claim, and the document is %q", owner, value)
			}
			if failure == nil && s.claims[i] && !found && s.at(1-i, "COMMIT") < s.at(i, "COMMIT") {
				s.wrongf("owner %d has the claim, and there is no document", i)
			}
		}
	},
}

func claim(owner int, instead []byte) operation {
	return operation{fmt.Sprint("claim a document as owner ", owner), func(ctx context.Context, n *node, s *scene) error {
		return n.InTx(ctx, func(tx *store.Tx) error {
			taken, err := tx.Claim(ctx, exchange.Claim{Namespace: "test", Key: s.name, Value: fmt.Append(nil, "owner ", owner), Instead: instead})
			s.claims[owner] = err == nil && taken == nil
			return err
		})
	}}
}

var removeDocument = operation{"remove the document", func(ctx context.Context, n *node, s *scene) error {
	return n.State().Delete(ctx, "test", s.name)
}}

// invariants must hold after whatever was done; each query returns what breaks it.
var invariants = map[string]string{
	"a blocked job has a predecessor": `SELECT j.id FROM jobs j WHERE j.state = 'blocked' AND NOT EXISTS (SELECT 1 FROM jobs e
		WHERE e.partition_key = j.partition_key AND e.state <> 'dead' AND e.id < j.id)`,
	"one job of a partition runs":      `SELECT partition_of FROM jobs WHERE partition_key <> '' AND state = 'running' GROUP BY partition_of HAVING COUNT(*) > 1`,
	"one turn of a task is its latest": `SELECT reference_key FROM turns WHERE reference_key <> '' GROUP BY owner_key, reference_key HAVING SUM(latest) <> 1`,
	"an ended turn has no open demand": `SELECT d.id FROM demands d JOIN turns t ON t.id = d.turn_id WHERE d.status IN ('issued', 'claimed')
		AND t.state NOT IN ('accepted', 'running', 'waiting', 'held')`,
	"a turn that has to run has a job": `SELECT t.id FROM turns t WHERE t.state IN ('accepted', 'running') AND NOT EXISTS (SELECT 1 FROM jobs j
		WHERE j.payload = t.id AND j.kind = '` + pipeline.JobKind + `')`,
	"a delivery that has to be made has a job": `SELECT d.id FROM deliveries d WHERE d.state IN ('pending', 'sending', 'retry') AND NOT EXISTS (SELECT 1 FROM jobs j
		WHERE j.payload = d.id)`,
	"an answer is of a turn that is answered": `SELECT r.id FROM replies r JOIN turns t ON t.id = r.turn_id WHERE r.notice = 0 AND t.state IN ('accepted', 'running', 'cancelled')
		AND t.reply_id = r.id`,
}

// broken returns what does not hold now.
func (s *scene) broken() (broken []string) {
	s.Helper()
	for name, query := range invariants {
		if s.count(`SELECT COUNT(*) FROM (`+query+`) AS found`) > 0 {
			broken = append(broken, name)
		}
	}
	return broken
}

package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
	"inbox/normalized"
)

// peer is a channel that keeps what it delivers and fails as it is told.
type peer struct {
	got  []exchange.Delivery
	fail error
}

func (p *peer) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

func (p *peer) Deliver(_ context.Context, d exchange.Delivery) (exchange.DeliveryReceipt, error) {
	p.got = append(p.got, d)
	return exchange.DeliveryReceipt{Detail: "250 ok"}, p.fail
}

// rig is a service on a database, with one peer.
type rig struct {
	*testing.T
	store   *store.Store
	peer    *peer
	refused string
	service *delivery.Service
}

func onBothDatabases(t *testing.T, test func(r *rig)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
				return store.Open(t.Context(), store.Options{DataDir: directory})
			})
			opened, err := store.Open(t.Context(), store.Options{DataDir: directory, URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := opened.Close(); err != nil {
					t.Error(err)
				}
			})
			r := &rig{T: t, store: opened, peer: &peer{}}
			r.service = delivery.New(delivery.Options{
				Store: opened.Deliverer(), Channels: exchange.NewChannels(exchange.Module{Name: "email", Channel: r.peer}),
				Refused: func(delivery.Record, exchange.Reply) string { return r.refused }, Logger: slog.New(slog.DiscardHandler),
			})
			test(r)
		})
	}
}

// waiting stores a delivery that waits for its first attempt.
func (r *rig) waiting(action string) (delivery.Record, exchange.Reply) {
	r.Helper()
	id, now := uuid.Must(uuid.NewV7()).String(), time.Now()
	turn := exchange.TurnRecord{
		ID: id, Agent: "echo", Principal: "p", ThreadID: id, State: exchange.StateAccepted, AcceptedAt: now, UpdatedAt: now, Channel: "email",
		Message: normalized.Message{
			ID: id, ThreadID: id, Recipient: "@echo@a.test", ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.At(now),
			Sender: normalized.Sender{Address: identity.Stated("@ann@b.test"), AuthMethod: normalized.AuthNone}, Parts: []normalized.Part{normalized.Text("hello")},
		},
	}
	reply := exchange.Reply{
		ID: uuid.Must(uuid.NewV7()).String(), TurnID: id, Agent: "echo", Message: turn.Message, Channel: "email", CreatedAt: now,
		Response: normalized.Response{InReplyTo: id, Parts: []normalized.Part{normalized.Text("answer")}},
	}
	record := delivery.Record{
		ID: uuid.Must(uuid.NewV7()).String(), TurnID: id, ReplyID: reply.ID, Agent: "echo", Channel: "email", NativeID: reply.ID + "@a.test",
		Key: "b.test", Address: "@ann@b.test", Data: json.RawMessage(`{}`), Action: action, State: delivery.StatePending, CreatedAt: now, UpdatedAt: now,
	}
	r.ok(r.store.InTx(r.Context(), func(tx *store.Tx) error {
		_, _, err := tx.InsertTurn(r.Context(), turn, pipeline.Original{})
		return errors.Join(err, tx.InsertReply(r.Context(), reply, record.NativeID), tx.InsertDelivery(r.Context(), record),
			tx.Enqueue(r.Context(), delivery.FirstJob(record, reply.Message.ThreadID)))
	}))
	return record, reply
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// claimed are the jobs of deliveries that may run now.
func (r *rig) claimed() []queue.Job {
	r.Helper()
	jobs, err := queuetest.Claim(r.Context(), r.store.Queue(), "node", delivery.JobKind, 10, time.Minute)
	r.ok(err)
	return jobs
}

// attempt runs the one job that waits.
func (r *rig) attempt() error {
	r.Helper()
	jobs := r.claimed()
	if len(jobs) != 1 {
		r.Fatalf("%d jobs wait, want one", len(jobs))
	}
	return r.service.Run(r.Context(), jobs[0])
}

// left fails unless the delivery has the state, the peer this many messages, and this many jobs are left.
func (r *rig) left(id, state string, received, jobs int) {
	r.Helper()
	record, _, err := r.store.Delivery(r.Context(), id)
	r.ok(err)
	queued, err := r.store.Jobs(r.Context(), store.JobFilter{Kind: delivery.JobKind})
	r.ok(err)
	if record.State != state || len(r.peer.got) != received || len(queued) != jobs {
		r.Errorf("the delivery is %s (%s), the peer has %d messages, %d jobs are left; want %s, %d and %d", record.State, record.Reason, len(r.peer.got), len(queued), state, received, jobs)
	}
}

// TestCancelledDeliveryHasNoJob: the job goes in the transaction that cancels; a retry brings one back.
func TestCancelledDeliveryHasNoJob(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		record, _ := r.waiting(exchange.ActionSend)
		r.ok(r.service.Cancel(r.Context(), record.ID))
		r.left(record.ID, delivery.StateCancelled, 0, 0)
		if err := r.service.Cancel(r.Context(), record.ID); !fault.Is(err, fault.Conflict) {
			r.Errorf("cancelled again: %v", err)
		}

		r.ok(r.service.Again(r.Context(), record.ID))
		if err := r.attempt(); err != nil && !errors.Is(err, queue.ErrSettled) {
			r.Fatal(err)
		}
		r.left(record.ID, delivery.StateDelivered, 1, 0)
		if err := r.service.Again(r.Context(), record.ID); !fault.Is(err, fault.Conflict) {
			r.Errorf("a delivered one is sent again: %v", err)
		}
	})
}

// TestRunningDeliveryIsNotCancelled: nothing calls an attempt back, and nobody is told that it did.
func TestRunningDeliveryIsNotCancelled(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		record, _ := r.waiting(exchange.ActionSend)
		jobs := r.claimed()
		if err := r.service.Cancel(r.Context(), record.ID); !fault.Is(err, fault.Conflict) {
			r.Errorf("an attempt that is under way is cancelled: %v", err)
		}
		if err := r.service.Run(r.Context(), jobs[0]); err != nil && !errors.Is(err, queue.ErrSettled) {
			r.Fatal(err)
		}
		r.left(record.ID, delivery.StateDelivered, 1, 0)
	})
}

// TestWithdrawnAnswerIsNotSent: what was taken back before its first attempt leaves no server, and the word that it was taken back does.
func TestWithdrawnAnswerIsNotSent(t *testing.T) {
	for action, want := range map[string]int{exchange.ActionSend: 0, exchange.ActionUpdate: 0, exchange.ActionDelete: 1} {
		onBothDatabases(t, func(r *rig) {
			record, reply := r.waiting(action)
			reply.Revision, reply.DeletedAt = 1, time.Now()
			r.ok(r.store.Deliverer().InTx(r.Context(), func(tx delivery.Tx) error {
				revised, err := tx.ReviseReply(r.Context(), reply, 0, exchange.Event{})
				if err == nil && !revised {
					err = errors.New("the reply was not revised")
				}
				return err
			}))
			if err := r.attempt(); err != nil && !errors.Is(err, queue.ErrSettled) {
				r.Fatal(err)
			}
			state := delivery.StateCancelled
			if want == 1 {
				state = delivery.StateDelivered
			}
			r.left(record.ID, state, want, 0)
		})
	}
}

// TestBlockedSinceItWasPlanned: a delivery that must not be made any more is cancelled before its attempt.
func TestBlockedSinceItWasPlanned(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		record, _ := r.waiting(exchange.ActionSend)
		r.refused = "blocked by the operator: b.test"
		if err := r.attempt(); err != nil && !errors.Is(err, queue.ErrSettled) {
			r.Fatal(err)
		}
		r.left(record.ID, delivery.StateCancelled, 0, 0)
	})
}

// TestEndOfAnAttempt: a failure that passes is tried again later, one that lasts is a dead letter, and each keeps or ends its job.
func TestEndOfAnAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		fail  error
		state string
		jobs  int
	}{
		"taken":                {nil, delivery.StateDelivered, 0},
		"fails for now":        {fault.RetryIn(time.Hour, "451 later", nil), delivery.StateRetry, 1},
		"fails for good":       {fault.GiveUp("550 no such mailbox", nil), delivery.StateDead, 0},
		"fails in some way":    {errors.New("reset"), delivery.StateRetry, 1},
		"runs out of attempts": {errors.New("reset"), delivery.StateDead, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(r *rig) {
				record, _ := r.waiting(exchange.ActionSend)
				r.peer.fail = test.fail
				jobs := r.claimed()
				if name == "runs out of attempts" {
					jobs[0].Attempt = len(delivery.DefaultSchedule) + 1
				}
				if err := r.service.Run(r.Context(), jobs[0]); err != nil && !errors.Is(err, queue.ErrSettled) {
					r.Fatal(err)
				}
				r.left(record.ID, test.state, 1, test.jobs)
			})
		})
	}
}

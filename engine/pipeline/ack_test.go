package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// AckAfter makes the peer one that is told when a turn takes long.
func (p *peer) AckAfter(wanted time.Duration) time.Duration { return wanted }

// working is an agent that holds its answer until the test says so.
type working struct {
	begun chan agents.Turn
	done  chan struct{}
}

func newWorking() working {
	return working{begun: make(chan agents.Turn, 100), done: make(chan struct{}, 100)}
}

func (w working) handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	w.begun <- turn
	select {
	case <-w.done:
		return normalized.Whole(texts("done: " + turn.Message.ID))
	case <-ctx.Done():
		return func(yield func(normalized.Delta, error) bool) { yield(normalized.Delta{}, ctx.Err()) }
	}
}

var soon = agents.Settings{AckAfter: 20 * time.Millisecond}

// deliveries returns the states of a turn's deliveries: of the acknowledgement and of the answer.
func (e *engine) deliveries(t *testing.T, turnID string) (ack, answer string) {
	t.Helper()
	records, err := e.store.Deliveries(t.Context(), delivery.Filter{TurnID: turnID, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		_, reply, err := e.store.Deliverer().Delivery(t.Context(), record.ID)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Notice == exchange.NoticeAck {
			ack += record.State
		} else {
			answer += record.State
		}
	}
	return ack, answer
}

func TestLongTurnIsAcknowledgedOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newWorking()
		e := start(t, url, agent.handle, soon)
		first := e.receive(t, from("ana", "m1", "thread"))
		ack := e.peer.next(t)
		if ack.Reply.Notice != exchange.NoticeAck || ack.Reply.TurnID != first.TurnID || plain(&ack.Reply.Response)[0] != agents.DefaultAckText {
			t.Fatalf("%+v", ack.Reply)
		}
		turn, err := e.store.Turn(t.Context(), first.TurnID)
		if err != nil || turn.Response != nil || turn.ReplyID != "" || exchange.Settled(turn.State) {
			t.Fatalf("the acknowledgement became the answer: %+v, %v", turn, err)
		}
		agent.done <- struct{}{}
		answer := e.peer.next(t)
		if answer.Reply.Notice != 0 || plain(&answer.Reply.Response)[0] != "done: m1@peer.test" || answer.NativeID == ack.NativeID {
			t.Fatalf("%+v", answer.Reply)
		}
		if turn = e.settled(t, first.TurnID); turn.State != exchange.StateAnswered || turn.ReplyID != answer.Reply.ID {
			t.Errorf("turn %+v", turn)
		}
		await.Receive(t, agent.begun, "the first run")
		agent.done <- struct{}{}
		e.receive(t, from("ana", "m2", "thread"))
		if next := await.Receive(t, agent.begun, "the run of the second message"); len(next.Message.History) != 2 {
			t.Errorf("the history has %d entries; want the question and the answer", len(next.Message.History))
		}
	})
}

func TestQuickTurnIsNotAcknowledged(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{AckAfter: time.Hour})
		receipt := e.receive(t, message("m1"))
		if d := e.peer.next(t); d.Reply.Notice != 0 {
			t.Errorf("notice %d", d.Reply.Notice)
		}
		e.idle(t)
		if ack, answer := e.deliveries(t, receipt.TurnID); ack != "" || answer != delivery.StateDelivered {
			t.Errorf("acknowledgement %q, answer %q", ack, answer)
		}
	})
}

// TestAnswerTakesThePlaceOfAPendingAcknowledgement: an acknowledgement that could not be delivered yet is dropped for the answer, which does
// not wait for the next attempt.
func TestAnswerTakesThePlaceOfAPendingAcknowledgement(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newWorking()
		e := start(t, url, agent.handle, soon)
		refused := make(chan struct{}, 10)
		e.peer.refuse = func(d exchange.Delivery) error {
			if d.Reply.Notice == exchange.NoticeAck {
				refused <- struct{}{}
				return fault.RetryIn(time.Hour, "421 come again tomorrow", nil)
			}
			return nil
		}
		receipt := e.receive(t, message("m1"))
		await.Receive(t, refused, "the attempt of the acknowledgement")
		await.Until(t, "the acknowledgement waits for its next attempt", func() bool {
			ack, _ := e.deliveries(t, receipt.TurnID)
			return ack == delivery.StateRetry
		})
		agent.done <- struct{}{}
		if d := e.peer.next(t); d.Reply.Notice != 0 {
			t.Fatalf("notice %d", d.Reply.Notice)
		}
		e.idle(t)
		if ack, answer := e.deliveries(t, receipt.TurnID); ack != delivery.StateCancelled || answer != delivery.StateDelivered {
			t.Errorf("acknowledgement %q, answer %q", ack, answer)
		}
		if len(refused) != 0 || e.peer.count() != 1 {
			t.Errorf("%d more attempts, %d arrivals", len(refused), e.peer.count())
		}
	})
}

// TestAcknowledgementOnTheWire: the answer waits for the end of the attempt, whatever it is, and for nothing more.
func TestAcknowledgementOnTheWire(t *testing.T) {
	for name, outcome := range map[string]error{"taken": nil, "refused": fault.RetryIn(time.Hour, "421 come again tomorrow", nil)} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				agent := newWorking()
				e := start(t, url, agent.handle, soon)
				onTheWire, over := make(chan struct{}), make(chan struct{})
				letGo := sync.OnceFunc(func() { close(over) })
				defer letGo()
				e.peer.refuse = func(d exchange.Delivery) error {
					if d.Reply.Notice != exchange.NoticeAck {
						return nil
					}
					close(onTheWire)
					<-over
					return outcome
				}
				receipt := e.receive(t, message("m1"))
				await.Receive(t, onTheWire, "the attempt of the acknowledgement")
				agent.done <- struct{}{}
				e.settled(t, receipt.TurnID)
				if ack, answer := e.deliveries(t, receipt.TurnID); ack != delivery.StateCancelled || answer != delivery.StatePending {
					t.Errorf("before its end: acknowledgement %q, answer %q", ack, answer)
				}
				letGo()
				want := delivery.StateCancelled
				if outcome == nil {
					want = delivery.StateDelivered
					if d := e.peer.next(t); d.Reply.Notice != exchange.NoticeAck {
						t.Fatalf("notice %d came first", d.Reply.Notice)
					}
				}
				if d := e.peer.next(t); d.Reply.Notice != 0 {
					t.Fatalf("notice %d", d.Reply.Notice)
				}
				e.idle(t)
				if ack, answer := e.deliveries(t, receipt.TurnID); ack != want || answer != delivery.StateDelivered {
					t.Errorf("acknowledgement %q, want %q; answer %q", ack, want, answer)
				}
			})
		})
	}
}

func TestCancelledTurnTakesItsAcknowledgementBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newWorking()
		e := start(t, url, agent.handle, soon)
		e.peer.refuse = func(exchange.Delivery) error { return fault.RetryIn(time.Hour, "421 come again tomorrow", nil) }
		receipt := e.receive(t, message("m1"))
		await.Until(t, "the acknowledgement waits for its next attempt", func() bool {
			ack, _ := e.deliveries(t, receipt.TurnID)
			return ack == delivery.StateRetry
		})
		if _, err := e.pipeline.Cancel(t.Context(), receipt.TurnID, "taken back"); err != nil {
			t.Fatal(err)
		}
		e.idle(t)
		if ack, answer := e.deliveries(t, receipt.TurnID); ack != delivery.StateCancelled || answer != "" {
			t.Errorf("acknowledgement %q, answer %q", ack, answer)
		}
		if _, err := e.pipeline.Cancel(t.Context(), receipt.TurnID, "again"); !fault.Is(err, fault.Conflict) {
			t.Errorf("cancelled again: %v", err)
		}
	})
}

// TestRepeatedRunIsNotAcknowledgedAgain: each run of the turn has its own timer, and the turn one acknowledgement.
func TestRepeatedRunIsNotAcknowledgedAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var runs atomic.Int32
		acknowledged := make(chan struct{})
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if runs.Add(1) == 1 {
				hold(ctx, acknowledged)
				return func(yield func(normalized.Delta, error) bool) {
					yield(normalized.Delta{}, fault.RetryIn(0, "the model is down", errors.New("503")))
				}
			}
			return normalized.Whole(texts("done"))
		}
		e := start(t, url, agent, soon)
		receipt := e.receive(t, message("m1"))
		e.peer.next(t)
		close(acknowledged)
		turn := e.settled(t, receipt.TurnID)
		e.pipeline.Acknowledge(t.Context(), turn) // too late
		e.idle(t)
		if runs.Load() != 2 || e.peer.count() != 2 {
			t.Errorf("%d runs, %d arrivals; want the acknowledgement and the answer", runs.Load(), e.peer.count())
		}
	})
}

// TestNodesAcknowledgeOnce: several nodes believe that they run the turn.
func TestNodesAcknowledgeOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newWorking()
		e := start(t, url, agent.handle, agents.Settings{AckAfter: time.Hour})
		receipt := e.receive(t, message("m1"))
		await.Receive(t, agent.begun, "the run")
		turn, err := e.store.Turn(t.Context(), receipt.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		const nodes = 6
		var acknowledging sync.WaitGroup
		for range nodes {
			acknowledging.Go(func() { e.pipeline.Acknowledge(t.Context(), turn) })
		}
		await.Done(t, acknowledging.Wait, "the acknowledgements of all nodes")
		first := e.peer.next(t)
		agent.done <- struct{}{} // not before: the answer would take its place
		if second := e.peer.next(t); first.Reply.Notice != exchange.NoticeAck || second.Reply.Notice != 0 {
			t.Errorf("notices %d, %d", first.Reply.Notice, second.Reply.Notice)
		}
		e.idle(t)
		if e.peer.count() != 2 {
			t.Errorf("%d arrivals", e.peer.count())
		}
	})
}

// TestWaitingTurnIsNotAcknowledged: a turn that waits for others says nothing meanwhile, and one that asked its asker
// something has given its sign of life.
func TestWaitingTurnIsNotAcknowledged(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		called, answered := make(chan struct{}), make(chan struct{})
		caller := callFunc(func(ctx context.Context, _ exchange.Dispatch) (normalized.Response, error) {
			close(called)
			hold(ctx, answered)
			return texts("from afar"), nil
		})
		echo := &script{name: "echo", settings: agents.Settings{AckAfter: time.Hour}, answer: relays("ask", "@far@elsewhere.test")}
		e := composed(t, url, func(o *pipeline.Options) { o.Caller = caller }, echo)
		receipt := e.receive(t, message("m1"))
		await.Receive(t, called, "the call of the other agent")
		await.Until(t, "the turn waits", func() bool {
			turn, err := e.store.Turn(t.Context(), receipt.TurnID)
			return err == nil && turn.State == exchange.StateWaiting
		})
		turn, err := e.store.Turn(t.Context(), receipt.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		e.pipeline.Acknowledge(t.Context(), turn)
		close(answered)
		e.settled(t, receipt.TurnID)
		e.idle(t)
		if ack, answer := e.deliveries(t, receipt.TurnID); ack != "" || answer != delivery.StateDelivered {
			t.Errorf("acknowledgement %q, answer %q", ack, answer)
		}
	})
}

func TestWhoIsAcknowledged(t *testing.T) {
	e := start(t, "sqlite", repeats, agents.Settings{AckAfter: time.Hour})
	asked := func(change func(*exchange.TurnRecord)) exchange.TurnRecord {
		turn := exchange.TurnRecord{ID: "t", Agent: "echo", Channel: normalized.ViaEmail, Message: from("ana", "m1", "m1").Message}
		if change != nil {
			change(&turn)
		}
		return turn
	}
	cases := map[string]struct {
		turn  exchange.TurnRecord
		after time.Duration
	}{
		"a person": {asked(nil), time.Hour},
		"an agent": {asked(func(r *exchange.TurnRecord) {
			r.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 1, MaxHops: 4}
		}), 0},
		"who got a demand":      {asked(func(r *exchange.TurnRecord) { r.ReplyID = "demand" }), 0},
		"who sees it":           {asked(func(r *exchange.TurnRecord) { r.Channel = normalized.ViaA2A }), 0},
		"of a removed agent":    {asked(func(r *exchange.TurnRecord) { r.Agent = "gone" }), 0},
		"an agent of this host": {asked(func(r *exchange.TurnRecord) { r.Channel = exchange.ChannelLocal }), 0},
	}
	for name, c := range cases {
		if got := e.pipeline.AckAfter(c.turn); got != c.after {
			t.Errorf("%s: after %v, want %v", name, got, c.after)
		}
	}
	off := start(t, "sqlite", repeats, agents.Settings{})
	if got := off.pipeline.AckAfter(asked(nil)); got != 0 {
		t.Errorf("switched off: after %v", got)
	}
}

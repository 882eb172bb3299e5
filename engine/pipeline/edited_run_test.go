package pipeline_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// edits lets a run of an agent go on while another node stores new words for its message: nothing stops the run.
type edits struct {
	t     *testing.T
	other *pipeline.Service
	once  sync.Once
}

func (o *edits) during(turn agents.Turn) {
	o.once.Do(func() {
		err := o.other.Amend(context.WithoutCancel(o.t.Context()), turn.Agent, turn.Message.ID, turn.Message.Sender.Principal(), []normalized.Part{normalized.Text("new words")})
		if err != nil {
			o.t.Error(err)
		}
	})
}

func wordsOf(turn agents.Turn) string { return normalized.PlainText(turn.Message.Parts) }

// TestEditedWordsAreNotPassedOn: a message is edited while its agent works. Whatever the run ends with is not stored: the turn runs again
// with the new words.
func TestEditedWordsAreNotPassedOn(t *testing.T) {
	t.Run("to another agent", func(t *testing.T) {
		eachDatabase(t, func(t *testing.T, url string) {
			edit := &edits{t: t}
			asker := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
				edit.during(turn)
				if turn.Message.ReceivedTrace == nil {
					return asks(wordsOf(turn), "@other@inbox.test")
				}
				return texts("done")
			}}
			other := &script{name: "other", answer: says("an answer")}
			e := composed(t, url, func(o *pipeline.Options) { edit.other = pipeline.New(*o) }, asker, other)
			e.settled(t, e.receive(t, message("1")).TurnID)
			if asked := other.turns(); len(asked) != 1 || wordsOf(asked[0]) != "new words" {
				t.Errorf("the other agent was asked %d times, first: %q", len(asked), wordsOf(asked[0]))
			}
		})
	})

	t.Run("to a tool", func(t *testing.T) {
		eachDatabase(t, func(t *testing.T, url string) {
			edit := &edits{t: t}
			e := startWith(t, url, func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
				edit.during(turn)
				if err := turn.Requests.Await(map[string]any{
					"tool_name": "client/pick", "tool_call_id": "c1", "run_id": turn.ID, "parameters": map[string]any{"words": wordsOf(turn)},
					"timeout_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano),
				}); err != nil {
					return normalized.Failing(err)
				}
				return normalized.Whole(texts("nobody reads this"))
			}, agents.Settings{}, func(o *pipeline.Options) { edit.other = pipeline.New(*o) })
			turnID := e.asked(t, "1")
			pending, err := e.pipeline.ToolRequests("echo", byProgram).Store.Get(t.Context(), requestOf(turnID))
			if parameters, _ := pending["parameters"].(map[string]any); err != nil || parameters["words"] != "new words" {
				t.Errorf("the program is asked for %v, %v", pending["parameters"], err)
			}
		})
	})

	t.Run("to an approver", func(t *testing.T) {
		eachDatabase(t, func(t *testing.T, url string) {
			edit := &edits{t: t}
			agent := &script{name: "echo", settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(turn agents.Turn) normalized.Response {
				edit.during(turn)
				return texts("you said: " + wordsOf(turn))
			}}
			e := composed(t, url, func(o *pipeline.Options) { edit.other = pipeline.New(*o) }, agent)
			e.waits(t, message("1"), "approval (reply)")
			if held := e.open(t); held.Draft == nil || plain(held.Draft)[0] != "you said: new words" {
				t.Errorf("an approver is shown %+v", held.Draft)
			}
		})
	})

	t.Run("to the sender", func(t *testing.T) {
		eachDatabase(t, func(t *testing.T, url string) {
			edit := &edits{t: t}
			e := startWith(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
				edit.during(turn)
				return repeats(ctx, turn)
			}, agents.Settings{}, func(o *pipeline.Options) { edit.other = pipeline.New(*o) })
			e.receive(t, message("1"))
			if words := said(e.peer.next(t)); words != "new words" {
				t.Errorf("the sender reads %q", words)
			}
		})
	})
}

// TestCancelledWhileItParks: a turn is cancelled while its run stores a demand. Whichever comes first, no demand stays open.
func TestCancelledWhileItParks(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		gate := make(chan struct{})
		begun := make(chan struct{}, 1)
		agent := &script{name: "echo", settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(agents.Turn) normalized.Response {
			begun <- struct{}{}
			<-gate
			return texts("hello")
		}}
		var options pipeline.Options
		e := composed(t, url, func(o *pipeline.Options) { options = *o }, agent)
		// The other node comes to its transaction when the run has parked the turn.
		parked := make(chan struct{})
		options.Store = lateStore{options.Store, func() { await.Receive(t, parked, "the end of the run") }}
		other := pipeline.New(options)
		turnID := e.receive(t, message("1")).TurnID
		await.Receive(t, begun, "the run of the agent")
		ended := make(chan error, 1)
		go func() {
			_, err := other.Cancel(context.WithoutCancel(t.Context()), turnID, "not wanted any more")
			ended <- err
		}()
		close(gate)
		e.settled(t, turnID)
		close(parked)
		if err := await.Receive(t, ended, "the end of the cancelling"); err != nil {
			t.Fatal(err)
		}

		demand, found, err := e.store.DemandOfTurn(t.Context(), turnID)
		if err != nil || !found || demand.Status != policypart.StatusDropped {
			t.Errorf("the demand of a cancelled turn is %q (%t, %v)", demand.Status, found, err)
		}
	})
}

// lateStore is a store whose transactions begin when something else has happened.
type lateStore struct {
	pipeline.Store
	wait func()
}

func (s lateStore) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	s.wait()
	return s.Store.InTx(ctx, work)
}

// TestGivenUpTurnThatGoesOn: the turn is run again between the look at it and the transaction. It is not given up, and the place of the
// claim is free.
func TestGivenUpTurnThatGoesOn(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var options pipeline.Options
		fails := true
		e := startWith(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if fails {
				return normalized.Failing(fault.GiveUp("not now", nil))
			}
			return repeats(ctx, turn)
		}, agents.Settings{}, func(o *pipeline.Options) { options = *o })
		turnID := e.receive(t, message("1")).TurnID
		if turn := e.ended(t, turnID); turn.State != exchange.StateFailed {
			t.Fatalf("the turn is %s", turn.State)
		}
		e.peer.next(t)
		await.Until(t, "the failure was delivered", func() bool {
			sent, err := e.store.Sent(t.Context(), turnID, e.turn(t, turnID).ReplyID)
			return err == nil && sent
		})

		fails = false
		options.Store = lateStore{options.Store, func() {
			if err := e.pipeline.Retry(t.Context(), turnID, anna); err != nil {
				t.Error(err)
			}
			e.peer.next(t)
		}}
		claim := exchange.Claim{Namespace: "test", Key: turnID, Value: []byte("given up")}
		if err := pipeline.New(options).GiveUp(t.Context(), turnID, claim, "not wanted any more", time.Now()); !fault.Is(err, fault.Conflict) {
			t.Errorf("given up although it went on: %v", err)
		}
		if _, found, err := e.store.State().Get(t.Context(), "test", turnID); found || err != nil {
			t.Errorf("the claim is there (%v)", err)
		}
	})
}

func (e *engine) turn(t *testing.T, turnID string) exchange.TurnRecord {
	t.Helper()
	turn, err := e.store.Turn(t.Context(), turnID)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

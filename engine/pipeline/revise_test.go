package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// hesitant answers "edited" at once and stops at everything else until its run is stopped.
func hesitant(begun chan<- string) agents.Func {
	return func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		text := normalized.PlainText(turn.Message.Parts)
		begun <- text
		if strings.HasPrefix(text, "edited") {
			return repeats(ctx, turn)
		}
		<-ctx.Done()
		return normalized.Failing(ctx.Err())
	}
}

// TestEditStopsARunOnOldWords: the agent begins again with the new words, and only their answer is sent.
func TestEditStopsARunOnOldWords(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		begun := make(chan string, 4)
		e := start(t, url, hesitant(begun), agents.Settings{})
		receipt := e.receive(t, from("ana", "m1", "thread"))
		if text := <-begun; text != "hello m1" {
			t.Fatalf("began with %q", text)
		}
		if err := e.pipeline.Amend(t.Context(), "echo", "m1@peer.test", principal("ana"), parts("edited")); err != nil {
			t.Fatal(err)
		}
		turn := e.settled(t, receipt.TurnID)
		if turn.State != exchange.StateAnswered || normalized.PlainText(turn.Response.Parts) != "edited" {
			t.Errorf("%s %+v", turn.State, turn.Response)
		}
		if d := e.peer.next(t); normalized.PlainText(d.Reply.Response.Parts) != "edited" || e.peer.count() != 1 {
			t.Errorf("%+v and %d deliveries", d.Reply.Response, e.peer.count())
		}
	})
}

// TestEditBesideTheAnswer: an edit that is stored while the run ends, on another node perhaps, is not answered with the
// old words: the reply finds the row changed.
func TestEditBesideTheAnswer(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var e *engine
		var runs atomic.Int32
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if runs.Add(1) == 1 { // the engine's hub never hears of this edit
				elsewhere(t, e, "m1@peer.test", "edited")
			}
			return repeats(ctx, turn)
		}
		e = start(t, url, agent, agents.Settings{})
		turn := e.settled(t, e.receive(t, from("ana", "m1", "thread")).TurnID)
		if got := normalized.PlainText(turn.Response.Parts); got != "edited" || runs.Load() != 2 {
			t.Errorf("%q after %d runs", got, runs.Load())
		}
		if e.peer.next(t); e.peer.count() != 1 {
			t.Errorf("%d deliveries", e.peer.count())
		}
	})
}

// elsewhere edits a message as another node would.
func elsewhere(t *testing.T, e *engine, id, text string) {
	other := pipeline.New(pipeline.Options{Store: e.store.Pipeline()})
	if err := other.Amend(context.Background(), "echo", id, principal("ana"), parts(text)); err != nil {
		t.Error(err)
	}
}

// TestRevisionStandsWithItsDocument: the adapter's document and the edit are one; of two edits about the same document
// one is told to look again.
func TestRevisionStandsWithItsDocument(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		in := from("ana", "m1", "thread")
		in.Claim = &exchange.Claim{Namespace: "test", Key: "note", Value: []byte("1")}
		e.settled(t, e.receive(t, in).TurnID)
		if receipt := e.receive(t, in); receipt.New || receipt.Claimed != nil {
			t.Errorf("a repeated message: %+v", receipt)
		}
		other := from("bo", "m9", "thread")
		other.Claim = &exchange.Claim{Namespace: "test", Key: "note", Value: []byte("2")}
		if receipt := e.receive(t, other); receipt.New || string(receipt.Claimed) != "1" || receipt.TurnID != "" {
			t.Errorf("a message in the place of another: %+v", receipt)
		}
		revision := exchange.Revision{
			MessageID: "m1@peer.test", Principal: principal("ana"),
			Rewrite: func(recipient string, _ json.RawMessage) ([]normalized.Part, json.RawMessage) {
				return parts("edited for " + recipient), json.RawMessage(`{"narrow":true}`)
			},
			Claim: &exchange.Claim{Namespace: "test", Key: "note", Instead: []byte("0"), Value: []byte("2")},
		}
		if err := e.pipeline.Revise(t.Context(), revision); !fault.Is(err, fault.Conflict) {
			t.Errorf("an edit of another version: %v", err)
		}
		revision.Claim.Instead = []byte("1")
		if err := e.pipeline.Revise(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		if value, _, err := e.store.State().Get(t.Context(), "test", "note"); err != nil || string(value) != "2" {
			t.Errorf("document %q, %v", value, err)
		}
		sent, err := e.store.SentMessages(t.Context(), "echo", "m1@peer.test", principal("ana"))
		if err != nil || normalized.PlainText(sent[0].Message.Parts) != "edited for @echo@inbox.test" || string(sent[0].Route) != `{"narrow":true}` {
			t.Errorf("%+v, %v", sent, err)
		}
	})
}

// TestDeletedTextIsErased: what was taken back is nowhere any more, only that it was there.
func TestDeletedTextIsErased(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		w.ask(t, e, from("ana", "m1", "thread"))
		if err := e.pipeline.Amend(t.Context(), "echo", "m1@peer.test", principal("ana"), parts("other words")); err != nil {
			t.Fatal(err)
		}
		before, err := e.store.SentMessages(t.Context(), "echo", "m1@peer.test", principal("ana"))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.pipeline.Remove(t.Context(), "echo", "m1@peer.test", principal("ana")); err != nil {
			t.Fatal(err)
		}
		turn, err := e.store.Turn(t.Context(), before[0].TurnID)
		if err != nil || len(turn.Message.Parts) != 0 || turn.Message.Sender.Address != "@ana@peer.test" || turn.Response == nil {
			t.Errorf("%+v, %v", turn, err)
		}
		if _, err := e.store.Original(t.Context(), strings.TrimPrefix(before[0].Message.Raw.Ref, "sha256:")); !fault.Is(err, fault.NotFound) {
			t.Errorf("the original is still there: %v", err)
		}
		events, err := e.store.Events(t.Context(), turn.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Kind == exchange.EventMessageEdited && len(event.Body) > 0 {
				t.Errorf("the timeline keeps %s", event.Body)
			}
		}
	})
}

func TestAccountDeletionEndsOpenTurns(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		begun := make(chan string, 4)
		e := start(t, url, hesitant(begun), agents.Settings{})
		runs := e.receive(t, from("ana", "m1", "one"))
		<-begun
		waits := e.receive(t, from("ana", "m2", "one"))
		stays := e.receive(t, from("bo", "m3", "two"))
		<-begun
		if err := e.pipeline.CancelOpen(t.Context(), "other", principal("ana"), "gone"); err != nil {
			t.Fatal(err)
		}
		if err := e.pipeline.CancelOpen(t.Context(), "", principal("ana"), "gone"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{runs.TurnID, waits.TurnID} {
			if turn := e.settled(t, id); turn.State != exchange.StateCancelled || turn.Reason != "gone" {
				t.Errorf("%s %s", turn.State, turn.Reason)
			}
		}
		if turn, err := e.store.Turn(t.Context(), stays.TurnID); err != nil || exchange.Terminal(turn.State) {
			t.Errorf("somebody else's turn: %s, %v", turn.State, err)
		}
		if err := e.pipeline.Remove(t.Context(), "", "m3@peer.test", principal("bo")); err != nil {
			t.Error(err)
		}
	})
}

func TestReactionsAreOnTheTimeline(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		receipt := e.receive(t, from("ana", "m1", "thread"))
		e.settled(t, receipt.TurnID)
		like := exchange.Reaction{Type: "Like", Actor: "https://peer.test/ana"}
		for _, gone := range []bool{false, true} {
			if err := e.pipeline.React(t.Context(), receipt.TurnID, like, gone); err != nil {
				t.Fatal(err)
			}
		}
		kinds := e.kinds(t, receipt.TurnID)
		if !slices.Contains(kinds, exchange.EventReaction) || !slices.Contains(kinds, exchange.EventReactionGone) {
			t.Errorf("timeline %q", kinds)
		}
	})
}

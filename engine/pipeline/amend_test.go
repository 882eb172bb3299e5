package pipeline_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

func parts(text string) []normalized.Part { return []normalized.Part{normalized.Text(text)} }

func (e *engine) kinds(t *testing.T, turnID string) (kinds []string) {
	t.Helper()
	events, err := e.store.Events(t.Context(), turnID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}

func TestEditsChangeTheNextHistory(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		w.ask(t, e, from("ana", "m1", "thread"))
		amend := func(kind fault.Kind, id, who, text string) {
			t.Helper()
			err := e.pipeline.Amend(t.Context(), "echo", id, who, parts(text))
			if kind == "" && err != nil || kind != "" && !fault.Is(err, kind) {
				t.Errorf("%s of %s: %v, want %q", id, who, err, kind)
			}
		}
		amend(fault.NotFound, "m1@peer.test", principal("bo"), "burned")
		amend(fault.NotFound, "m2@peer.test", principal("ana"), "burned")
		amend(fault.Forbidden, "m1@peer.test", "unverified @ana@peer.test", "burned")
		amend(fault.Malformed, "m1@peer.test", principal("ana"), " ")
		amend("", "m1@peer.test", principal("ana"), "hello m1")
		amend("", "m1@peer.test", principal("ana"), "good day")
		amend("", "m1@peer.test", principal("ana"), "good evening\x07")
		if got := w.ask(t, e, from("ana", "m2", "thread")); got != "good evening | re: hello m1" {
			t.Errorf("saw %q", got)
		}
		sent, err := e.store.SentMessages(t.Context(), "echo", "m1@peer.test", principal("ana"))
		if err != nil || len(sent) != 1 || !sent[0].Edited {
			t.Fatalf("%+v, %v", sent, err)
		}
		events, err := e.store.Events(t.Context(), sent[0].TurnID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var bodies []string
		for _, event := range events {
			if event.Kind == exchange.EventMessageEdited {
				bodies = append(bodies, string(event.Body))
			}
		}
		if want := []string{`{"original":[{"kind":"text","mime":"text/plain","content":"hello m1"}]}`, ""}; !slices.Equal(bodies, want) {
			t.Errorf("timeline %q", bodies)
		}
		if original, err := e.store.Original(t.Context(), sent[0].Message.Raw.Ref[len("sha256:"):]); err != nil || string(original.Body) != "original of anam1" {
			t.Errorf("original %q, %v", original.Body, err)
		}
	})
}

func TestDeletedQuestionLeavesTheHistory(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		w.ask(t, e, from("ana", "m1", "thread"))
		w.ask(t, e, from("ana", "m2", "thread"))
		if err := e.pipeline.Remove(t.Context(), "echo", "m2@peer.test", principal("bo")); !fault.Is(err, fault.NotFound) {
			t.Errorf("another sender: %v", err)
		}
		for range 2 {
			if err := e.pipeline.Remove(t.Context(), "echo", "m2@peer.test", principal("ana")); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.pipeline.Amend(t.Context(), "echo", "m2@peer.test", principal("ana"), parts("again")); !fault.Is(err, fault.NotFound) {
			t.Errorf("edit after the end: %v", err)
		}
		if got := w.ask(t, e, from("ana", "m3", "thread")); got != "hello m1 | re: hello m1  re: hello m2" {
			t.Errorf("saw %q", got)
		}
		if err := e.pipeline.Remove(t.Context(), "", "m1@peer.test", principal("ana")); err != nil {
			t.Fatal(err)
		}
		if got := w.ask(t, e, from("ana", "m4", "thread")); got != "hello m3 | re: hello m3" {
			t.Errorf("saw %q: answers without any question before them open no history", got)
		}
	})
}

func TestDeletedMessageIsNotAnswered(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		begun := make(chan struct{}, 1)
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if normalized.PlainText(turn.Message.Parts) == "edited" {
				return repeats(ctx, turn)
			}
			begun <- struct{}{}
			<-ctx.Done()
			return normalized.Failing(ctx.Err())
		}
		e := start(t, url, agent, agents.Settings{})
		first := e.receive(t, from("ana", "m1", "thread"))
		waits := e.receive(t, from("ana", "m2", "thread"))
		await.Receive(t, begun, "the first run")
		if err := e.pipeline.Amend(t.Context(), "echo", "m2@peer.test", principal("ana"), parts("edited")); err != nil {
			t.Fatal(err)
		}
		if err := e.pipeline.Remove(t.Context(), "echo", "m1@peer.test", principal("ana")); err != nil {
			t.Fatal(err)
		}
		if turn := e.settled(t, first.TurnID); turn.State != exchange.StateCancelled {
			t.Errorf("state %s", turn.State)
		}
		if kinds := e.kinds(t, first.TurnID); !slices.Contains(kinds, exchange.EventMessageDeleted) {
			t.Errorf("timeline %q", kinds)
		}
		turn := e.settled(t, waits.TurnID)
		if turn.State != exchange.StateAnswered || normalized.PlainText(turn.Response.Parts) != "edited" {
			t.Errorf("a message that was edited before its run: %s, %+v", turn.State, turn.Response)
		}
		if d := e.peer.next(t); d.Reply.TurnID != waits.TurnID || e.peer.count() != 1 {
			t.Errorf("%+v and %d deliveries", d, e.peer.count())
		}
	})
}

// TestDeletionErasesWhatApproversRead: the beginning of the question that an approval keeps goes with the message.
func TestDeletionErasesWhatApproversRead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e, _ := approving(t, url, &script{answer: refunds})
		in := from("ana", "1", "t")
		in.Message.Parts = []normalized.Part{normalized.Text("my private words")}
		turn := e.settled(t, e.receive(t, in).TurnID)
		kept := func() string {
			issuance, found, err := e.store.DemandOfTurn(t.Context(), turn.ID)
			if err != nil || !found {
				t.Fatalf("found %v: %v", found, err)
			}
			return string(issuance.Notes)
		}
		if !strings.Contains(kept(), "my private words") {
			t.Fatalf("the approval keeps %s", kept())
		}
		if err := e.pipeline.Remove(t.Context(), "", in.Message.ID, turn.Principal); err != nil {
			t.Fatal(err)
		}
		if got := kept(); strings.Contains(got, "private") || !strings.Contains(got, `"approvals":1`) {
			t.Errorf("the approval keeps %s", got)
		}
	})
}

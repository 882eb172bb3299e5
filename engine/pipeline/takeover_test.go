package pipeline_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	anna = "operator:anna"
	bert = "operator:bert"
)

// listener is an agent that repeats and remembers what it was told.
type listener struct {
	mu    sync.Mutex
	turns []agents.Turn
	gate  chan struct{} // nil = it answers at once
	begun chan struct{}
	fails bool
}

func (l *listener) answer(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		l.mu.Lock()
		l.turns = append(l.turns, turn)
		gate, fails := l.gate, l.fails
		l.gate = nil // only the first run waits
		l.mu.Unlock()
		if gate != nil {
			close(l.begun)
			<-gate // whatever becomes of the run: it is at its last word
		}
		if fails {
			yield(normalized.Delta{}, fault.GiveUp("broken", nil))
			return
		}
		part := normalized.Text("agent: " + turn.Message.Parts[0].Content)
		_ = yield(normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &part}, nil) && yield(normalized.Delta{Kind: normalized.DeltaPartEnd}, nil)
	}
}

func (l *listener) heard() []agents.Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]agents.Turn(nil), l.turns...)
}

func (e *engine) write(t *testing.T, a pipeline.OperatorAnswer) string {
	t.Helper()
	id, err := e.pipeline.WriteAnswer(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func refusedWith(t *testing.T, err error, kind fault.Kind, words string) {
	t.Helper()
	if !fault.Is(err, kind) || !strings.Contains(fault.Of(err).Public, words) {
		t.Fatalf("got %v, want %s with %q", err, kind, words)
	}
}

func said(d exchange.Delivery) string { return normalized.PlainText(d.Reply.Response.Parts) }

// TestTakeover: while an operator has a conversation its agent is silent; of two operators one has it; the agent is told once.
func TestTakeover(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		ctx := t.Context()
		agent := new(listener)
		e := start(t, url, agent.answer, agents.Settings{})
		e.receive(t, from("ana", "1", "talk"))
		e.peer.next(t)

		if _, err := e.pipeline.TakeOver(ctx, "echo", "no talk", anna, false); !fault.Is(err, fault.NotFound) {
			t.Fatalf("a conversation that is not there: %v", err)
		}
		for range 2 {
			open, err := e.pipeline.TakeOver(ctx, "echo", "talk", anna, false)
			if err != nil || open.Holder != anna {
				t.Fatalf("%+v, %v", open, err)
			}
		}

		second := e.receive(t, from("ana", "2", "talk"))
		turn := e.settled(t, second.TurnID)
		if turn.State != exchange.StateWaiting || turn.Reason != exchange.WaitingOperator || exchange.StandingOf(turn) != exchange.StandingAuthorize {
			t.Fatalf("the message is %s (%s)", turn.State, turn.Reason)
		}
		if repeated := e.receive(t, from("ana", "2", "talk")); repeated.New || repeated.TurnID != second.TurnID {
			t.Fatalf("a repeat was %+v", repeated)
		}

		_, err := e.pipeline.TakeOver(ctx, "echo", "talk", bert, false)
		refusedWith(t, err, fault.Conflict, anna)
		if open, err := e.pipeline.TakeOver(ctx, "echo", "talk", bert, true); err != nil || open.Holder != bert || open.Waiting != 1 {
			t.Fatalf("%+v, %v", open, err)
		}
		toTalk := pipeline.OperatorAnswer{Agent: "echo", ThreadID: "talk", By: anna, Key: "k1", Text: "a person says hello"}
		_, err = e.pipeline.WriteAnswer(ctx, toTalk)
		refusedWith(t, err, fault.Conflict, bert)

		toTalk.By = bert
		for range 3 { // the same request, again and again
			if id := e.write(t, toTalk); id != second.TurnID {
				t.Fatalf("answered %s, want %s", id, second.TurnID)
			}
		}
		if got := said(e.peer.next(t)); got != toTalk.Text {
			t.Fatalf("delivered %q", got)
		}
		if turn := e.ended(t, second.TurnID); turn.State != exchange.StateAnswered || exchange.AnsweredBy(turn) != bert || len(turn.Written.Parts) != 0 {
			t.Fatalf("%s, %+v", turn.State, turn.Written)
		}

		toTalk.Key, toTalk.Text = "k2", "and one thing more"
		if id := e.write(t, toTalk); id != second.TurnID {
			t.Fatalf("a further answer went to %s", id)
		}
		if got := said(e.peer.next(t)); got != toTalk.Text {
			t.Fatalf("delivered %q", got)
		}
		e.ended(t, second.TurnID)

		third := e.receive(t, from("ana", "3", "talk"))
		if turn := e.settled(t, third.TurnID); turn.State != exchange.StateWaiting {
			t.Fatalf("the third message is %s", turn.State)
		}
		if heard := agent.heard(); len(heard) != 1 {
			t.Fatalf("the agent ran %d times", len(heard))
		}

		_, err = e.pipeline.HandBack(ctx, "echo", "talk", anna, pipeline.HandBack{})
		refusedWith(t, err, fault.Conflict, bert)
		if _, err = e.pipeline.HandBack(ctx, "echo", "talk", bert, pipeline.HandBack{Note: "be kind to her"}); err != nil {
			t.Fatal(err)
		}
		if got := said(e.peer.next(t)); got != "agent: hello 3" {
			t.Fatalf("delivered %q", got)
		}
		_, err = e.pipeline.HandBack(ctx, "echo", "talk", bert, pipeline.HandBack{})
		refusedWith(t, err, fault.NotFound, "no operator")

		e.receive(t, from("ana", "4", "talk"))
		e.peer.next(t)
		heard := agent.heard()
		if len(heard) != 3 {
			t.Fatalf("the agent ran %d times", len(heard))
		}
		if h := heard[1].Handover; h == nil || h.Note != "be kind to her" || h.Until.Before(h.Since) {
			t.Errorf("the agent was told %+v", h)
		}
		if heard[2].Handover != nil {
			t.Error("the agent was told twice")
		}
		past := heard[1].Message.History
		if len(past) != 4 {
			t.Fatalf("the history has %d turns: %+v", len(past), past)
		}
		last := past[3]
		if got := normalized.PlainText(last.Parts); last.Role != normalized.RoleAssistant || !strings.Contains(got, "a person says hello") || !strings.Contains(got, "one thing more") {
			t.Errorf("the history ends with %s %q", last.Role, got)
		}
		if marks := last.Sender.Identities; len(marks) != 1 || marks[0].Method != identity.MethodLocalOperator || marks[0].Subject != bert {
			t.Errorf("the operator's answer is marked %+v", marks)
		}
		if marks := past[1].Sender.Identities; len(marks) != 0 {
			t.Errorf("the agent's answer is marked %+v", marks)
		}

		records, err := e.store.AuditRecords(ctx, exchange.AuditFilter{Code: "t*", Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, record := range records {
			counts[record.Code]++
		}
		want := map[string]int{exchange.AuditTakenOver: 1, exchange.AuditTaken: 1, exchange.AuditAnswered: 2, exchange.AuditHandedBack: 1}
		for code, count := range want {
			if counts[code] != count {
				t.Errorf("%d records %s, want %d", counts[code], code, count)
			}
		}
		if n := e.peer.count(); n != 5 {
			t.Errorf("%d deliveries, want 5", n)
		}
	})
}

// ended waits until a turn has ended.
func (e *engine) ended(t *testing.T, turnID string) exchange.TurnRecord {
	t.Helper()
	var turn exchange.TurnRecord
	await.Until(t, "a turn has ended", func() bool {
		var err error
		if turn, err = e.store.Turn(t.Context(), turnID); err != nil {
			t.Fatal(err)
		}
		return exchange.Terminal(turn.State)
	})
	return turn
}

// TestTakeoverOfRun: what a run brings that was under way does not leave; the operator sees it, and the agent answers after the end.
func TestTakeoverOfRun(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &listener{gate: make(chan struct{}), begun: make(chan struct{})}
		gate := agent.gate
		e := start(t, url, agent.answer, agents.Settings{})
		first := e.receive(t, from("ana", "1", "talk"))
		await.Receive(t, agent.begun, "the begin of the run")
		if open, err := e.pipeline.TakeOver(t.Context(), "echo", "talk", anna, false); err != nil || open.Waiting != 1 {
			t.Fatalf("%+v, %v", open, err)
		}
		close(gate)

		await.Until(t, "the draft is kept", func() bool {
			_, err := e.store.Draft(t.Context(), first.TurnID)
			return err == nil
		})
		draft, _ := e.store.Draft(t.Context(), first.TurnID)
		if got := normalized.PlainText(draft.Response.Parts); got != "agent: hello 1" {
			t.Errorf("the draft says %q", got)
		}
		if turn, err := e.store.Turn(t.Context(), first.TurnID); err != nil || turn.State != exchange.StateWaiting || turn.ReplyID != "" {
			t.Fatalf("%s with reply %q, %v", turn.State, turn.ReplyID, err)
		}

		if _, err := e.pipeline.HandBack(t.Context(), "echo", "talk", anna, pipeline.HandBack{}); err != nil {
			t.Fatal(err)
		}
		if got := said(e.peer.next(t)); got != "agent: hello 1" {
			t.Errorf("delivered %q", got)
		}
		if e.ended(t, first.TurnID); e.peer.count() != 1 || len(agent.heard()) != 2 {
			t.Errorf("%d deliveries of %d runs", e.peer.count(), len(agent.heard()))
		}
	})
}

// TestAnswersOfOperators: without a takeover an operator answers what runs, what failed and what was answered; what is dropped gets none.
func TestAnswersOfOperators(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &listener{gate: make(chan struct{}), begun: make(chan struct{})}
		gate := agent.gate
		e := start(t, url, agent.answer, agents.Settings{})
		running := e.receive(t, from("ana", "1", "runs"))
		await.Receive(t, agent.begun, "the begin of the run")
		e.write(t, pipeline.OperatorAnswer{TurnID: running.TurnID, By: anna, Text: "faster"})
		close(gate)
		if got := said(e.peer.next(t)); got != "faster" {
			t.Errorf("delivered %q", got)
		}
		e.ended(t, running.TurnID)

		agent.mu.Lock()
		agent.fails = true
		agent.mu.Unlock()
		failed := e.receive(t, from("ana", "2", "fails"))
		e.peer.next(t)
		if turn := e.ended(t, failed.TurnID); turn.State != exchange.StateFailed {
			t.Fatalf("the second message is %s", turn.State)
		}
		e.write(t, pipeline.OperatorAnswer{TurnID: failed.TurnID, By: anna, Text: "now by hand", MIME: normalized.MIMEMarkdown})
		if got := said(e.peer.next(t)); got != "now by hand" {
			t.Errorf("delivered %q", got)
		}
		if turn := e.ended(t, failed.TurnID); turn.State != exchange.StateAnswered {
			t.Errorf("the second message is %s", turn.State)
		}

		for name, a := range map[string]pipeline.OperatorAnswer{
			"empty": {TurnID: failed.TurnID, By: anna, Text: " "},
			"html":  {TurnID: failed.TurnID, By: anna, Text: "<b>", MIME: normalized.MIMEHTML},
		} {
			if _, err := e.pipeline.WriteAnswer(t.Context(), a); err == nil {
				t.Errorf("%s: taken", name)
			}
		}

		if _, err := e.pipeline.TakeOver(t.Context(), "echo", "fails", anna, false); err != nil {
			t.Fatal(err)
		}
		dropped := e.receive(t, from("ana", "3", "fails"))
		e.settled(t, dropped.TurnID)
		if _, err := e.pipeline.HandBack(t.Context(), "echo", "fails", anna, pipeline.HandBack{Drop: true}); err != nil {
			t.Fatal(err)
		}
		if turn := e.ended(t, dropped.TurnID); turn.State != exchange.StateCancelled || !strings.Contains(turn.Reason, anna) {
			t.Errorf("the third message is %s (%s)", turn.State, turn.Reason)
		}
		_, err := e.pipeline.WriteAnswer(t.Context(), pipeline.OperatorAnswer{TurnID: dropped.TurnID, By: anna, Text: "too late"})
		refusedWith(t, err, fault.Conflict, "cancelled")
		if n := e.peer.count(); n != 3 {
			t.Errorf("%d deliveries, want 3", n)
		}
	})
}

// TestTakeoverThatWasLeft: the server hands back what no operator touches, and what a process left when it died while it handed back.
func TestTakeoverThatWasLeft(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := new(listener)
		e := start(t, url, agent.answer, agents.Settings{})
		e.receive(t, from("ana", "1", "talk"))
		e.peer.next(t)
		if _, err := e.pipeline.TakeOver(t.Context(), "echo", "talk", anna, false); err != nil {
			t.Fatal(err)
		}
		waiting := e.receive(t, from("ana", "2", "talk"))
		e.settled(t, waiting.TurnID)
		if err := e.pipeline.EndTakeoversNow(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if open, found, err := e.store.Takeover(t.Context(), "echo", "talk"); err != nil || !found || !open.Open() {
			t.Fatalf("handed back too early: %+v, %v", open, err)
		}

		for _, died := range []bool{false, true} {
			if died {
				again, err := e.pipeline.TakeOver(t.Context(), "echo", "talk", anna, false)
				if err != nil {
					t.Fatal(err)
				}
				waiting = e.receive(t, from("ana", "3", "talk"))
				e.settled(t, waiting.TurnID)
				again.EndedAt, again.EndedBy = time.Now(), anna
				err = e.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
					_, err := tx.EndTakeover(t.Context(), again)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := e.pipeline.EndTakeoversNow(t.Context(), time.Nanosecond); err != nil {
				t.Fatal(err)
			}
			if got := said(e.peer.next(t)); !strings.HasPrefix(got, "agent: ") {
				t.Errorf("delivered %q", got)
			}
			if turn := e.ended(t, waiting.TurnID); turn.State != exchange.StateAnswered {
				t.Errorf("the message is %s", turn.State)
			}
		}
	})
}

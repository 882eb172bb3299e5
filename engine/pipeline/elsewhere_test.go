package pipeline_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// stubborn is an agent whose first run works until it is stopped; later ones repeat the message.
type stubborn struct {
	begun   chan string // turns whose first run has begun
	stopped chan string

	mu    sync.Mutex
	words []string // of each run
}

func newStubborn() *stubborn {
	return &stubborn{begun: make(chan string, 10), stopped: make(chan string, 10)}
}

func (s *stubborn) handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	s.mu.Lock()
	s.words = append(s.words, normalized.PlainText(turn.Message.Parts))
	first := len(s.words) == 1
	s.mu.Unlock()
	if !first {
		return repeats(ctx, turn)
	}
	s.begun <- turn.ID
	<-ctx.Done()
	s.stopped <- turn.ID
	return normalized.Failing(ctx.Err())
}

func (s *stubborn) runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.words)
}

// patientAgent has so long a time limit that nothing but a stop ends its runs.
var patientAgent = agents.Settings{TimeLimit: time.Hour}

// node is another node on the same database that runs no turns. It is told of nothing.
func (e *engine) node(t *testing.T, options pipeline.Options, url string) *engine {
	t.Helper()
	other := &engine{store: e.store, peer: e.peer}
	if url != "" {
		opened, err := store.Open(t.Context(), store.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		})
		other.store, options.Store = opened, opened.Pipeline()
	}
	other.pipeline = pipeline.New(options)
	return other
}

// act is something at one node that stops a run at another one.
type act struct {
	do    func(t *testing.T, at *engine, turn exchange.TurnRecord)
	state string // to which the turn comes
	said  string // what its sender reads afterwards; empty = nothing
	runs  int    // of the agent, all in all
	woken bool   // it needs a wake-up to end the run before its end; what the run brings is refused in any case
}

var actsElsewhere = map[string]act{
	"cancelled": {state: exchange.StateCancelled, runs: 1, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if _, err := at.pipeline.Cancel(t.Context(), turn.ID, "not wanted any more"); err != nil {
			t.Fatal(err)
		}
	}},
	"deleted by its sender": {state: exchange.StateCancelled, runs: 1, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if err := at.pipeline.Remove(t.Context(), turn.Agent, turn.Message.ID, turn.Principal); err != nil {
			t.Fatal(err)
		}
	}},
	"the sender is blocked, or gone": {state: exchange.StateCancelled, runs: 1, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if err := at.pipeline.CancelOpen(t.Context(), "", turn.Principal, "blocked"); err != nil {
			t.Fatal(err)
		}
	}},
	"answered by an operator": {state: exchange.StateAnswered, said: "a person answers", runs: 1, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if _, err := at.pipeline.TakeOver(t.Context(), turn.Agent, turn.ThreadID, anna, false); err != nil {
			t.Fatal(err)
		}
		at.write(t, pipeline.OperatorAnswer{TurnID: turn.ID, By: anna, Text: "a person answers"})
	}},
	"taken over and closed": {state: exchange.StateCancelled, runs: 1, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if _, err := at.pipeline.TakeOver(t.Context(), turn.Agent, turn.ThreadID, anna, false); err != nil {
			t.Fatal(err)
		}
		if _, err := at.pipeline.HandBack(t.Context(), turn.Agent, turn.ThreadID, anna, pipeline.HandBack{Drop: true}); err != nil {
			t.Fatal(err)
		}
	}},
	"taken over and handed back": {state: exchange.StateAnswered, said: "hello 1", runs: 2, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if _, err := at.pipeline.TakeOver(t.Context(), turn.Agent, turn.ThreadID, anna, false); err != nil {
			t.Fatal(err)
		}
		if _, err := at.pipeline.HandBack(t.Context(), turn.Agent, turn.ThreadID, anna, pipeline.HandBack{}); err != nil {
			t.Fatal(err)
		}
	}},
	"edited": {state: exchange.StateAnswered, said: "other words", runs: 2, woken: true, do: func(t *testing.T, at *engine, turn exchange.TurnRecord) {
		t.Helper()
		if err := at.pipeline.Amend(t.Context(), turn.Agent, turn.Message.ID, turn.Principal, []normalized.Part{normalized.Text("other words")}); err != nil {
			t.Fatal(err)
		}
	}},
}

// TestRunsAreStoppedElsewhere: what ends a turn at one node ends its run at another one, by the other node's notification.
func TestRunsAreStoppedElsewhere(t *testing.T) {
	t.Parallel()
	for name, act := range actsElsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Postgres(t)
			stopsElsewhere(t, url, time.Hour, url, act)
		})
	}
}

// TestRunsAreStoppedWithoutWakeUps: the node hears nothing, and finds out with the heartbeat of its leases.
func TestRunsAreStoppedWithoutWakeUps(t *testing.T) {
	for name, act := range actsElsewhere {
		if act.woken {
			continue
		}
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) { stopsElsewhere(t, url, 0, "", act) })
		})
	}
}

// stopsElsewhere runs a turn at one node and acts at another one.
func stopsElsewhere(t *testing.T, url string, lease time.Duration, elsewhere string, act act) {
	t.Helper()
	agent := newStubborn()
	var options pipeline.Options
	e := startLeased(t, url, lease, agent.handle, patientAgent, func(o *pipeline.Options) { options = *o })
	other := e.node(t, options, elsewhere)
	turnID := e.receive(t, from("ana", "1", "talk")).TurnID
	await.Receive(t, agent.begun, "the run of the agent")
	var turn exchange.TurnRecord
	await.Until(t, "the row says that the turn runs", func() (running bool) {
		var err error
		turn, err = e.store.Turn(t.Context(), turnID)
		return err == nil && turn.State == exchange.StateRunning
	})

	act.do(t, other, turn)
	await.Receive(t, agent.stopped, "the end of the run")
	await.Until(t, "the end of the job", func() bool {
		jobs, err := e.store.Jobs(t.Context(), store.JobFilter{Kind: pipeline.JobKind, Limit: 10})
		return err == nil && len(jobs) == 0
	})
	if turn := e.ended(t, turnID); turn.State != act.state || agent.runs() != act.runs {
		t.Errorf("the turn is %s (%s) after %d runs of the agent", turn.State, turn.Reason, agent.runs())
	}
	if act.said != "" {
		if words := said(e.peer.next(t)); words != act.said {
			t.Errorf("its sender reads %q", words)
		}
	}
	if e.peer.count() > 1 || act.said == "" && e.peer.count() > 0 {
		t.Errorf("%d deliveries", e.peer.count())
	}
}

// TestRunIsCancelledElsewhereAsItBegins: the row does not say yet that the turn runs; the write that says so finds out.
func TestRunIsCancelledElsewhereAsItBegins(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newStubborn()
		var options pipeline.Options
		e := startWith(t, url, agent.handle, patientAgent, func(o *pipeline.Options) { options = *o })
		other := e.node(t, options, "")
		turnID := e.receive(t, message("1")).TurnID
		await.Receive(t, agent.begun, "the run of the agent")
		if _, err := other.pipeline.Cancel(t.Context(), turnID, "not wanted any more"); err != nil {
			t.Fatal(err)
		}

		await.Receive(t, agent.stopped, "the end of the run")
		if turn := e.ended(t, turnID); turn.State != exchange.StateCancelled || agent.runs() != 1 {
			t.Errorf("the turn is %s after %d runs", turn.State, agent.runs())
		}
	})
}

// TestTakenOverElsewhere: a run goes on although an operator takes its conversation over at another node. What it brings is a draft.
func TestTakenOverElsewhere(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	begun, gate := make(chan struct{}), make(chan struct{})
	var options pipeline.Options
	e := startLeased(t, url, time.Hour, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		close(begun)
		hold(ctx, gate)
		return repeats(ctx, turn)
	}, patientAgent, func(o *pipeline.Options) { options = *o })
	other := e.node(t, options, url)
	turnID := e.receive(t, from("ana", "1", "talk")).TurnID
	await.Receive(t, begun, "the run of the agent")
	if _, err := other.pipeline.TakeOver(t.Context(), "echo", "talk", anna, false); err != nil {
		t.Fatal(err)
	}

	close(gate)
	await.Until(t, "a draft", func() bool {
		draft, err := e.store.Draft(t.Context(), turnID)
		return err == nil && normalized.PlainText(draft.Response.Parts) == "hello 1"
	})
	if turn := e.settled(t, turnID); turn.Reason != exchange.WaitingOperator || e.peer.count() != 0 {
		t.Errorf("the turn is %s (%s), %d deliveries", turn.State, turn.Reason, e.peer.count())
	}
}

// TestWaitingTurnIsCancelledElsewhere: a turn that waits behind another one of its thread is never begun once another node has cancelled it.
func TestWaitingTurnIsCancelledElsewhere(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		begun, gate := make(chan string, 3), make(chan struct{})
		var options pipeline.Options
		e := startWith(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			begun <- turn.Message.ID
			hold(ctx, gate)
			return repeats(ctx, turn)
		}, patientAgent, func(o *pipeline.Options) { options = *o })
		other := e.node(t, options, "")
		e.receive(t, from("ana", "1", "talk"))
		await.Receive(t, begun, "the first run")
		second := e.receive(t, from("ana", "2", "talk"))
		if _, err := other.pipeline.Cancel(t.Context(), second.TurnID, "not wanted any more"); err != nil {
			t.Fatal(err)
		}

		third := e.receive(t, from("ana", "3", "talk"))
		close(gate)
		e.settled(t, third.TurnID)
		if next := await.Receive(t, begun, "the last run"); next != "3@peer.test" {
			t.Errorf("a run of %s began", next)
		}
	})
}

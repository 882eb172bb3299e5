package pipeline_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// stoppable is an agent whose first run works until someone interrupts it.
type stoppable struct {
	begun, gate chan struct{}
	stops       chan *agents.Interrupt
	runs        atomic.Int32
}

func (s *stoppable) answer(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	if s.runs.Add(1) > 1 {
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("again")}})
	}
	first, held := turn.Lease()
	second, _ := turn.Lease()
	if turn.Interrupt() != nil || !held || first == "" || first != second {
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("the run is stopped from its begin")}})
	}

	close(s.begun)
	hold(ctx, s.gate)
	s.stops <- turn.Interrupt()
	turn.KeepResult(conversationResult("interrupted", "words"))
	return normalized.Whole(normalized.Response{
		Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: "run:interrupted"}, Parts: []normalized.Part{normalized.Text("stopped")},
	})
}

// TestInterruptsOfRuns: an agent learns who stops its run, and what the run kept says that it was interrupted.
func TestInterruptsOfRuns(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		for name, test := range map[string]struct {
			interrupt func(e *engine, turnID string) error
			source    string
			reason    string
			kept      bool // with its document
		}{
			"cancel": {func(e *engine, turnID string) error {
				_, err := e.pipeline.Cancel(t.Context(), turnID, "stopped by its asker")
				return err
			}, agents.InterruptCancel, "stopped by its asker", false},
			"takeover": {func(e *engine, turnID string) error {
				_, err := e.pipeline.TakeOver(t.Context(), "echo", "talk", anna, false)
				return err
			}, agents.InterruptTakeover, "operator", true},
		} {
			t.Run(name, func(t *testing.T) {
				agent := &stoppable{begun: make(chan struct{}), gate: make(chan struct{}), stops: make(chan *agents.Interrupt, 1)}
				e := start(t, url, agent.answer, agents.Settings{})
				id := e.receive(t, from("ana"+name, "1", "talk")).TurnID
				await.Receive(t, agent.begun, "the begin of the run")
				if err := test.interrupt(e, id); err != nil {
					t.Fatal(err)
				}
				close(agent.gate)

				stop := await.Receive(t, agent.stops, "the interrupt")
				if stop == nil || stop.Source != test.source || !strings.Contains(stop.Reason, test.reason) {
					t.Fatalf("interrupted by %+v", stop)
				}
				await.Until(t, "the result is kept", func() bool {
					found, err := e.store.RunResults(t.Context(), id)
					return err == nil && len(found) == 1 && found[0].Status == "interrupted"
				})
				if one, err := e.store.RunResult(t.Context(), id, 1); err != nil || (one.Body != nil) != test.kept || (one.LeftOut == "") != test.kept {
					t.Errorf("kept %s (%s), %v", one.Body, one.LeftOut, err)
				}
				if _, err := e.store.Draft(t.Context(), id); err == nil {
					t.Error("a run that was interrupted leaves a draft")
				}
				if !test.kept {
					return
				}

				if _, err := e.pipeline.HandBack(t.Context(), "echo", "talk", anna, pipeline.HandBack{}); err != nil {
					t.Fatal(err)
				}
				if turn := e.settled(t, id); turn.State != exchange.StateAnswered || normalized.PlainText(turn.Response.Parts) != "again" {
					t.Errorf("handed back it is %s: %+v", turn.State, turn.Response)
				}
			})
		}
	})
}

package llm

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// stopSwitch is what the engine says about a run that is to stop.
type stopSwitch struct{ stop *agents.Interrupt }

func (s *stopSwitch) put(turn *agents.Turn) {
	turn.Interrupt = func() *agents.Interrupt { return s.stop }
}

// TestTakeoverStopsARunBetweenItsTurns: an operator takes over while a tool works. The model is not asked again, the kept result says who
// interrupted, and the run that follows the takeover does not repeat the call.
func TestTakeoverStopsARunBetweenItsTurns(t *testing.T) {
	s := &stopSwitch{}
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}, run: func(context.Context, tool.Call) (map[string]any, error) {
		s.stop = &agents.Interrupt{Source: agents.InterruptTakeover, Reason: "anna has it"}
		return map[string]any{"success": true, "result": map[string]any{"found": 1}}, nil
	}}
	agent := newAgent(t, Options{Provider: scripted(calls("find", `{"q":"x"}`), says("found it")), Tools: []Tools{tools}})
	turn := question("takeover")
	note := &memory{}
	turn.Memory = note
	s.put(&turn)
	kept := keeping(t, &turn)
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || response.Status != normalized.StatusFailed || response.Error.Code != "run:interrupted" {
		t.Fatalf("%+v, %v", response, err)
	}

	result := (*kept)[0]
	by := value.Assoc(result["interrupted"])
	if result["status"] != "interrupted" || value.Assoc(result["run_outcome"])["status"] != "interrupted" || by["action"] != "cancel" ||
		by["source"] != "takeover" || by["reason"] != "anna has it" || by["session_id"] != turn.Message.ThreadID || by["run_id"] != turn.ID {
		t.Errorf("kept %s", value.EncodeText(result))
	}
	if tools.count() != 1 || value.Text(value.Assoc(by["message"])["content"]) == "" {
		t.Errorf("%d calls, interrupted by %v", tools.count(), by["message"])
	}

	s.stop = nil
	turn.Memory = &memory{note: note.note}
	turn.Attempt = 2
	model := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		next := calls("find", `{"q":"x"}`)
		for _, message := range request.Messages {
			if slices.ContainsFunc(message.Blocks, func(block Block) bool { return block.Kind == BlockResult }) {
				next = says("found it")
			}
		}
		for _, delta := range next {
			if !yield(delta) {
				break
			}
		}
		return nil
	})
	response, _, err = fold(t.Context(), t, newAgent(t, Options{Provider: model, Tools: []Tools{tools}}), turn)
	if err != nil || texts(response) != "found it" || tools.count() != 1 {
		t.Errorf("handed back: %q after %d calls, %v", texts(response), tools.count(), err)
	}
}

// TestTakeoverLeavesAWholeAnswer: what the model says in its last turn becomes the operator's draft, with tools and without.
func TestTakeoverLeavesAWholeAnswer(t *testing.T) {
	for name, tools := range map[string][]Tools{"with tools": {&toolbox{entries: []tool.Entry{declare("find", nil)}}}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			s := &stopSwitch{stop: &agents.Interrupt{Source: agents.InterruptTakeover}}
			turn := question("draft")
			s.put(&turn)
			kept := keeping(t, &turn)
			response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: scripted(says("a draft")), Tools: tools}), turn)
			if err != nil || texts(response) != "a draft" || len(*kept) != 1 || (*kept)[0]["interrupted"] != nil {
				t.Errorf("%q, %v, %v", texts(response), *kept, err)
			}
		})
	}
}

// TestCancelledRunSaysWhoCancelled: the context of the run ends while the model works, and the result names the source and the reason.
func TestCancelledRunSaysWhoCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		stop           *agents.Interrupt
		source, reason any
		said           bool // in the transcript
	}{
		"cancelled":       {&agents.Interrupt{Source: agents.InterruptCancel, Reason: "stopped by its asker"}, "cancel", "stopped by its asker", true},
		"process stopped": {nil, nil, "context_cancelled", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &stopSwitch{}
			provider := modelFunc(func(ctx context.Context, _ Request, _ func(Delta) bool) error {
				s.stop = test.stop
				cancel(errStopped)
				return ctx.Err()
			})
			turn := question("cancel")
			s.put(&turn)
			kept := keeping(t, &turn)
			_, _, err := fold(ctx, t, newAgent(t, Options{Provider: provider}), turn)
			if !errors.Is(err, errStopped) || len(*kept) != 1 {
				t.Fatalf("%d results, %v", len(*kept), err)
			}
			by := value.Assoc((*kept)[0]["interrupted"])
			if by["source"] != test.source || by["reason"] != test.reason || by["action"] != "cancel" {
				t.Errorf("interrupted by %v", by)
			}
			messages, _ := value.List((*kept)[0]["messages"])
			if said := value.Assoc(messages[len(messages)-1])["content"] == "Cancel this run."; said != test.said {
				t.Errorf("messages %s", value.EncodeText(messages))
			}
		})
	}
}

var errStopped = errors.New("stopped by the test")

// TestRunWithoutItsLease: a run whose lease is over does not ask its model, and keeps no result.
func TestRunWithoutItsLease(t *testing.T) {
	asked := 0
	provider := modelFunc(func(_ context.Context, _ Request, yield func(Delta) bool) error {
		asked++
		yield(Delta{Kind: DeltaText, Text: "hello"})
		return nil
	})
	var events []string
	options := Options{Provider: provider, Observe: func(_ context.Context, _ agents.Turn, name string, payload map[string]any) {
		events = append(events, name+" "+value.Text(payload["session_id"]))
	}}
	for _, held := range []bool{false, true} {
		asked, events = 0, nil
		turn := question("lease")
		turn.Lease = func() (string, bool) { return "job/1", held }
		kept := keeping(t, &turn)
		_, _, err := fold(t.Context(), t, newAgent(t, options), turn)
		if held && (err != nil || asked != 1 || len(*kept) != 1) {
			t.Errorf("held: %d questions, %d results, %v", asked, len(*kept), err)
		}
		if !held && (!errors.Is(err, agents.ErrLeaseLost) || asked != 0 || len(*kept) != 0 ||
			!cmp.Equal(events, []string{"transcript_lock_contention " + turn.Message.ThreadID})) {
			t.Errorf("lost: %d questions, %d results, %v, %v", asked, len(*kept), events, err)
		}
	}
}

// embedder is a program that sets its own persister, lock and interrupts.
type embedder struct{ calls []string }

func (e *embedder) Persist(_ context.Context, _ []envelope.Envelope, request loop.Request, result map[string]any) error {
	e.calls = append(e.calls, "persist "+request.RunID+" "+value.Text(value.Assoc(result["run_outcome"])["status"]))
	return errStopped // changes nothing
}

func (e *embedder) Poll(context.Context, loop.Request, map[string]any) (any, error) {
	e.calls = append(e.calls, "poll")
	return nil, nil
}

// TestEmbeddedPersisterIsCalledBesideOurs, once and before the run is completed.
func TestEmbeddedPersisterIsCalledBesideOurs(t *testing.T) {
	e := &embedder{}
	turn := question("embedded")
	(&stopSwitch{}).put(&turn)
	kept := keeping(t, &turn)
	agent := newAgent(t, Options{
		Provider: scripted(says("hello")),
		Configure: func(_ context.Context, _ agents.Turn, options *loop.Options) {
			options.TranscriptPersister, options.Interrupts = e, e
		},
		Observe: func(_ context.Context, _ agents.Turn, name string, _ map[string]any) { e.calls = append(e.calls, name) },
	})
	response, _, err := fold(t.Context(), t, agent, turn)
	want := []string{"turn_started", "poll", "persist " + turn.ID + " completed", "completed"}
	if err != nil || texts(response) != "hello" || len(*kept) != 1 || !slices.Equal(e.calls, want) {
		t.Errorf("%q, %d results, %v, %v", texts(response), len(*kept), e.calls, err)
	}
}

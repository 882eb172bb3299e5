package held

import (
	"context"
	"testing"

	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/internal/fault"
)

// moves keeps what was done to one message. During a restore, before is called.
type moves struct {
	Decisions

	before func()
	state  string
}

func (h *moves) Restore(context.Context, string) error {
	h.before()
	h.state = exchange.StateHeld
	return nil
}

func (h *moves) Drop(context.Context, string, string) error {
	h.state = exchange.StateRefused
	return nil
}

// TestRestoreBesideABlock: a block that is stored while a message is put back on hold looked for its messages too early, so the message is dropped again.
func TestRestoreBesideABlock(t *testing.T) {
	for name, test := range map[string]struct {
		during moderation.Verdict
		state  string
	}{
		"no block":             {moderation.Verdict{}, exchange.StateHeld},
		"a block that holds":   {moderation.Verdict{Effect: exchange.EffectHold, Reason: "spam"}, exchange.StateHeld},
		"a block that refuses": {moderation.Verdict{Effect: exchange.EffectRefuse, Reason: "spam"}, exchange.StateRefused},
	} {
		t.Run(name, func(t *testing.T) {
			var now moderation.Verdict
			made := &moves{state: exchange.StateRefused, before: func() { now = test.during }}
			service := New(made, nil, nil, func(context.Context, string) (moderation.Verdict, error) { return now, nil })
			err := service.Restore(t.Context(), "t1")
			if refused := test.state == exchange.StateRefused; fault.Is(err, fault.Conflict) != refused || made.state != test.state {
				t.Errorf("%v; the message is %s", err, made.state)
			}
		})
	}
}

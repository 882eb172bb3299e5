package agents_test

import (
	"testing"

	"inbox/agents"
	"inbox/normalized"
)

// TestStepHasItsOwnKey: the key is the same in every attempt, and another one for every step of the turn.
func TestStepHasItsOwnKey(t *testing.T) {
	turn := agents.Turn{ID: "t", Attempt: 1, Agent: "a", Message: normalized.Message{ID: "m"}}
	again := turn
	again.Attempt = 7
	asked := turn
	asked.Message.ReceivedTrace = &normalized.Response{Parts: []normalized.Part{normalized.Text("rain")}}
	more := turn
	more.Message.ReceivedTrace = &normalized.Response{Parts: []normalized.Part{normalized.Text("sun")}}
	keys := map[string]bool{turn.Step(): true, again.Step(): true, asked.Step(): true, more.Step(): true}
	if len(keys) != 3 || turn.Step() != turn.ID {
		t.Errorf("keys %v", keys)
	}
}

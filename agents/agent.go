// Package agents is the seam between the engine and whatever answers: the Agent interface, the registry of agents
// by name and the events of a growing answer. It knows no protocol and no storage.
package agents

import (
	"context"
	"iter"

	"inbox/normalized"
)

// Turn is everything an agent gets for one message.
type Turn struct {
	ID      string // UUIDv7; the same in every attempt
	Attempt int    // from 1; a higher number means that an earlier run did not come to its end
	Agent   string // name, the local part of the address

	Message normalized.Message // with history, already trimmed; agents never trim again

	// HistoryCacheBreakpointAfter is the index in Message.History after which the prefix will be the same next
	// time; nil when there is no history (message contract, section 4).
	HistoryCacheBreakpointAfter *int

	// Permits says whether the operator's rules let the sender use the agent for a purpose: "tool:<name>" or
	// "skill:<id>" (message contract, section 10). Tools and skills are closed until a rule opens them. Nil permits
	// nothing.
	Permits func(purpose string) bool
}

// Agent answers turns. Handle yields the deltas of the answer; their fold is the Response. An error ends the turn as
// failed (or repeats it, when fault says that a retry may succeed). Handle must be re-entrant: after a crash the same
// Turn comes again with a higher Attempt. It stops when ctx ends.
type Agent interface {
	Handle(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error]
}

// Func makes an Agent of a function.
type Func func(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error]

// Handle calls f.
func (f Func) Handle(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error] {
	return f(ctx, turn)
}

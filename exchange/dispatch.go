package exchange

import (
	"time"

	"inbox/normalized"
)

// WaitingDispatch is the reason of a turn in StateWaiting that goes on by itself as soon as other agents have answered:
// nobody has to do anything about it.
const WaitingDispatch = "dispatch"

// States of a Dispatch.
const (
	DispatchPending = "pending"
	DispatchDone    = "done"
)

// Kinds of an Event about calls of other agents.
const (
	EventDispatchCalled   = "dispatch.called"   // body: {"id","to"}
	EventDispatchAnswered = "dispatch.answered" // body: {"id","to","status"}
)

// Dispatch is one call of one of our agents to another agent, here or elsewhere, while its own turn waits. The one with
// Number 0 is no call: it keeps the answer to which the others are added (Combine).
type Dispatch struct {
	ID        string                `json:"id"` // UUIDv7; also the id of the message on the wire, so that a repeat is recognised
	TurnID    string                `json:"turn_id"`
	Number    int                   `json:"number"`    // counts the calls of the turn from 1
	Agent     string                `json:"agent"`     // name of the calling agent
	From      string                `json:"from"`      // its address
	To        string                `json:"to"`        // address of the agent that is called
	ThreadID  string                `json:"thread_id"` // the same for every call of one conversation of Agent to To
	Parts     []normalized.Part     `json:"parts"`
	Chain     normalized.AgentChain `json:"chain"`
	Sender    normalized.Sender     `json:"sender"`  // of the turn's message: on whose behalf the call is made
	Combine   bool                  `json:"combine"` // a mention that the way back cannot relay; false: the agent asked for the call
	State     string                `json:"state"`
	Response  *normalized.Response  `json:"response,omitempty"` // nil until done
	CreatedAt time.Time             `json:"created_at"`         // the same for the calls of one round
	UpdatedAt time.Time             `json:"updated_at"`
}

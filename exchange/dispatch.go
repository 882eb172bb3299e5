package exchange

import (
	"time"

	"inbox/normalized"
)

// States of a Dispatch.
const (
	DispatchPending = "pending"
	DispatchDone    = "done"
)

// Dispatch is one call of one of our agents to another agent, here or elsewhere, while its own turn waits.
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
	CreatedAt time.Time             `json:"created_at"`
	UpdatedAt time.Time             `json:"updated_at"`
}

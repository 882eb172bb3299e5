package exchange

import (
	"encoding/json"
	"strings"
	"time"
)

// WaitingTool begins the reason of a turn in StateWaiting that goes on by itself as soon as a program outside has given
// the result of a tool.
const WaitingTool = "tool"

// ToolAuthorization is the name of the request by which an agent waits until somebody has signed in elsewhere. The asker is told
// with the first one; each has a time at which the agent looks again.
const ToolAuthorization = "authorization"

// WaitingAuthorization is the reason of a turn that waits for that. It goes on by itself, and the asker can help.
const WaitingAuthorization = WaitingTool + " (" + ToolAuthorization + ")"

// GoesOnByItself reports whether a turn waits for something about which its asker can do nothing: other agents, or a
// program that executes a tool.
func GoesOnByItself(turn TurnRecord) bool {
	return turn.State == StateWaiting && turn.Reason != WaitingAuthorization &&
		(turn.Reason == WaitingDispatch || turn.Reason == WaitingTool || strings.HasPrefix(turn.Reason, WaitingTool+" "))
}

// Kinds of an Event about tools that programs outside execute.
const (
	EventToolRequested = "tool.requested" // body: {"request_id","tool_name","timeout_at"}
	EventToolSubmitted = "tool.submitted" // body: {"request_id","tool_name","success","by"}
	EventToolTimedOut  = "tool.timed_out" // body: {"request_id","tool_name","by"}
	EventToolCancelled = "tool.cancelled" // body: {"request_id","tool_name","by"}
)

// ToolRequest is one call of a tool that a program outside of the server executes. Statuses and the documents are those
// of the agent runtime contract, section 5.
type ToolRequest struct {
	ID        string          `json:"request_id"`
	Agent     string          `json:"agent"`
	TurnID    string          `json:"turn_id"`
	ToolName  string          `json:"tool_name"`
	Status    string          `json:"status"`
	Request   json.RawMessage `json:"request"`          // as it was made
	Result    json.RawMessage `json:"result,omitempty"` // the normalized result; empty without one
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	TimeoutAt time.Time       `json:"timeout_at,omitzero"` // zero = it waits for ever
}

// ToolRequestFilter selects requests. Empty fields do not restrict.
type ToolRequestFilter struct {
	Agent         string
	TurnID        string
	ToolName      string
	CreatedBefore time.Time
	CreatedAfter  time.Time
	DueBy         time.Time // TimeoutAt at or before
	All           bool      // also those that do not wait any more
	Limit         int       // 1…500
}

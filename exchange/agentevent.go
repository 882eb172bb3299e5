package exchange

import "time"

// AgentEventKind is the queue kind of what an agent is told about an answer of its own; the payload is an AgentEvent.
const AgentEventKind = "agent.event"

// AgentEvent is something that happened to an answer after it was given. It asks for nothing, and nothing can be said to it.
type AgentEvent struct {
	ID        string    `json:"id"`   // UUIDv7; the same in every repeat
	Kind      string    `json:"kind"` // EventDeliveryBounced, EventDeliveryComplaint or EventDeliveryDead
	Agent     string    `json:"agent"`
	TurnID    string    `json:"turn_id"`
	MessageID string    `json:"message_id"` // of the question
	ThreadID  string    `json:"thread_id"`
	Recipient string    `json:"recipient"` // whom it did not reach, or who complained
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

package pull

import (
	"encoding/json"
	"fmt"
	"time"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
)

// Version of the document of a turn. It changes only when a program that ignores unknown keys would misread one.
const Version = 1

// Request is a turn as a program takes it: the body of a webhook with a lease.
type Request struct {
	Version                     int                `json:"version"`
	Turn                        RequestTurn        `json:"turn"`
	Lease                       Lease              `json:"lease"`
	Message                     normalized.Message `json:"message"`
	HistoryCacheBreakpointAfter *int               `json:"history_cache_breakpoint_after,omitempty"`

	SentAt identity.Time `json:"sent_at"` // when this attempt was offered
}

// RequestTurn names the turn. ID is the same in every attempt.
type RequestTurn struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
}

// Lease is the right to answer one attempt of a turn. It ends when the program gives no sign of life for so many seconds.
type Lease struct {
	ID      string `json:"id"`
	Seconds int    `json:"seconds"`
}

func leaseOf(id string, length time.Duration) Lease {
	return Lease{ID: id, Seconds: int(length / time.Second)}
}

func requestOf(turn agents.Turn, lease Lease) ([]byte, error) {
	document, err := json.Marshal(Request{
		Version: Version, Turn: RequestTurn{ID: turn.ID, Attempt: turn.Attempt, Agent: turn.Agent}, Lease: lease,
		Message: turn.Message, HistoryCacheBreakpointAfter: turn.HistoryCacheBreakpointAfter, SentAt: identity.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the turn for a program: %w", err)
	}
	return document, nil
}

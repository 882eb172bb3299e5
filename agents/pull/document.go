package pull

import (
	"encoding/json"
	"fmt"
	"time"

	"inbox/agents"
)

// Request is a turn as a program takes it: the body of a webhook with a lease. SentAt is when this attempt was offered.
type Request struct {
	agents.Document

	Lease Lease `json:"lease"`
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
	document, err := json.Marshal(Request{Document: turn.Document(), Lease: lease})
	if err != nil {
		return nil, fmt.Errorf("encode the turn for a program: %w", err)
	}
	return document, nil
}

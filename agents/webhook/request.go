package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
)

// Version of the request body. It changes only when an agent that ignores unknown keys would misread a request.
const Version = 1

// Request is the body that the agent receives.
type Request struct {
	Version                     int                `json:"version"`
	Turn                        RequestTurn        `json:"turn"`
	Message                     normalized.Message `json:"message"`
	HistoryCacheBreakpointAfter *int               `json:"history_cache_breakpoint_after,omitempty"`

	// SentAt is under the signature, so that an agent can refuse a request that somebody recorded and sends again.
	SentAt identity.Time `json:"sent_at"`
}

// RequestTurn names the turn. ID is the same in every attempt and also comes as the header Idempotency-Key.
type RequestTurn struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
}

func (a *Agent) request(ctx context.Context, turn agents.Turn) (*http.Request, error) {
	body, err := json.Marshal(Request{
		Version:                     Version,
		Turn:                        RequestTurn{ID: turn.ID, Attempt: turn.Attempt, Agent: turn.Agent},
		Message:                     turn.Message,
		HistoryCacheBreakpointAfter: turn.HistoryCacheBreakpointAfter,
		SentAt:                      identity.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode webhook request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.options.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make webhook request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Idempotency-Key", turn.ID)
	request.Header.Set(SignatureHeader, Sign(a.options.Secret, body))
	return request, nil
}

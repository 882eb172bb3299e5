package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
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

// RequestTurn names the turn. ID is the same in every attempt.
type RequestTurn struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
}

// step names what is asked: the turn, and with what it was taken up again. An agent that remembers its answer by this
// key would otherwise repeat the question that has just been answered.
func step(turn agents.Turn) string {
	m := turn.Message
	if m.PolicyResolution == nil && m.ReceivedTrace == nil {
		return turn.ID
	}
	brought, err := json.Marshal(struct {
		Resolution *policypart.Resolution `json:"policy_resolution"`
		Trace      *normalized.Response   `json:"received_trace"`
	}{m.PolicyResolution, m.ReceivedTrace})
	if err != nil {
		return turn.ID // the body cannot be written either
	}
	sum := sha256.Sum256(brought)
	return turn.ID + "-" + hex.EncodeToString(sum[:8])
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
	request.Header.Set("Idempotency-Key", step(turn))
	request.Header.Set(SignatureHeader, Sign(a.options.Secret, body))
	return request, nil
}

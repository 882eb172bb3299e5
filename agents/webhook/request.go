package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"inbox/agents"
	"inbox/internal/telemetry"
)

// Request is the body that the agent receives. SentAt is under the signature, so that an agent can refuse a request
// that someone recorded and sends again.
type Request = agents.Document

func (a *Agent) request(ctx context.Context, turn agents.Turn) (*http.Request, error) {
	document := turn.Document()
	body, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode webhook request: %w", err)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.options.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make webhook request: %w", err)
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Idempotency-Key", document.Turn.IdempotencyKey)
	telemetry.Inject(ctx, request.Header)
	request.Header.Set(SignatureHeader, a.options.signatures(body))
	return request, nil
}

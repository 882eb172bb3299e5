package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"inbox/agents/upstream"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
)

// hearLimit bounds one request of Hear: no caller waits for an answer.
const hearLimit = 15 * time.Second

// Hears reports whether the webhook is told what became of its answers.
func (a *Agent) Hears() bool { return a.options.Events }

// Hear posts an event, signed like a message; every answer of 2xx will do.
func (a *Agent) Hear(ctx context.Context, event exchange.AgentEvent) error {
	ctx, cancel := context.WithTimeout(ctx, hearLimit)
	defer cancel()

	body, err := json.Marshal(struct {
		Event exchange.AgentEvent `json:"event"`
	}{event})
	if err != nil {
		return upstream.NotUsable(err)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.options.URL, bytes.NewReader(body))
	if err != nil {
		return upstream.NotUsable(err)
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", event.ID)
	telemetry.Inject(ctx, request.Header)
	request.Header.Set(SignatureHeader, a.options.signatures(body))
	response, err := a.options.Client.Do(request)
	if err != nil {
		if !safehttp.Unconnected(err) {
			err = exchange.WithReach(err, exchange.ReachSession)
		}
		return fault.RetryIn(0, "the webhook cannot be reached", err)
	}

	_ = response.Body.Close()
	switch {
	case response.StatusCode/100 == 2:
		return nil
	case response.StatusCode/100 == 4 && response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusRequestTimeout:
		return upstream.NotUsable(errors.New("the webhook does not take events: " + response.Status))
	}

	cause := exchange.WithReach(fmt.Errorf("event %s: %s", event.ID, response.Status), exchange.ReachOfStatus(response.StatusCode))
	return fault.RetryIn(0, "the webhook answered "+response.Status, cause)
}

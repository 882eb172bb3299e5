package store

import (
	"encoding/json"
	"fmt"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// resumed is with what a parked turn was taken up again.
type resumed struct {
	Resolution *policypart.Resolution `json:"policy_resolution,omitempty"`
	Trace      *normalized.Response   `json:"received_trace,omitempty"`
}

func (r resumed) encode() (string, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode resumption: %w", err)
	}
	return cleaned(string(body)), nil
}

// fillResumed puts what was stored where the agent looks for it.
func fillResumed(turn *exchange.TurnRecord, stored string) error {
	if stored == "" {
		return nil
	}
	var r resumed
	if err := json.Unmarshal([]byte(stored), &r); err != nil {
		return fmt.Errorf("decode resumption of turn %s: %w", turn.ID, err)
	}
	turn.Message.PolicyResolution, turn.Message.ReceivedTrace = r.Resolution, r.Trace
	return nil
}

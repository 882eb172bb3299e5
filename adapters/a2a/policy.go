package a2a

import (
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/facilitator"
	"inbox/policypart"
)

// addPolicy puts a demand or refusal into a status message three times: as text for any client, as data, and in the
// metadata of the policy extension (message contract, section 8). A payment also gets the keys that deployed x402
// clients read.
func (a *Adapter) addPolicy(message *a2a.Message, policy policypart.Part) error {
	policy = a.options.Present(policy)
	encoded, err := json.Marshal(policy)
	if err != nil {
		return fmt.Errorf("write policy part: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		return fmt.Errorf("write policy part: %w", err)
	}
	message.Parts = append(message.Parts, a2a.NewTextPart(policy.Text("")), a2a.NewDataPart(object))
	message.Extensions = append(message.Extensions, policypart.Extension)
	message.SetMeta(mentionableKey, map[string]any{"policy": object})
	if policy.Kind == policypart.PaymentRequired {
		message.SetMeta(paymentStatusKey, paymentRequired)
		accepts := policy.Accepts
		if accepts == nil {
			accepts = []json.RawMessage{}
		}
		message.SetMeta("x402.payment.required", map[string]any{"x402Version": facilitator.VersionOf(accepts), "accepts": accepts})
	}
	return nil
}

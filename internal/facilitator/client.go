// Package facilitator asks an x402 facilitator whether a payment is good and has it carried out (x402 specification,
// versions 1 and 2, section 7). It knows nothing of demands and decides nothing; it never holds money or keys.
package facilitator

import "encoding/json"

// Payment is what the payer signed and the requirements that it was asked to meet, both as they came.
type Payment struct {
	Version      int             // x402Version: 1 or 2
	Payload      json.RawMessage // paymentPayload
	Requirements json.RawMessage // paymentRequirements
}

// Verification is the answer to /verify.
type Verification struct {
	Valid  bool
	Reason string // the facilitator's own code when it is not valid, such as insufficient_funds
	Payer  string
}

// Settlement is the answer to /settle.
type Settlement struct {
	Success     bool
	Reason      string // the facilitator's own code when there was no success
	Payer       string
	Transaction string
	Network     string
	Raw         json.RawMessage // the answer as it came, which payers get as their receipt
}

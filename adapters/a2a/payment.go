package a2a

import (
	"encoding/json"
	"maps"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/policypart"
)

// Values of x402.payment.status, as deployed x402 clients read them.
const (
	paymentRequired  = "payment-required"
	paymentRejected  = "payment-rejected"
	paymentVerified  = "payment-verified"
	paymentCompleted = "payment-completed"
	paymentFailed    = "payment-failed"

	paymentReceiptsKey = "x402.payment.receipts"
	paymentDataKey     = "dev.mentionable.payment" // of a resolution: payer, network and terms
)

var paymentSentences = map[string]string{
	paymentVerified:  "The payment was verified; the agent works.",
	paymentCompleted: "The payment was completed.",
}

// payment returns the x402 keys of a turn whose payment was decided; nil for all others. What the capture wrote beside
// the answer comes before what follows from the resolution.
func payment(turn exchange.TurnRecord, state a2a.TaskState) map[string]any {
	resolution := turn.Message.PolicyResolution
	if resolution == nil || resolution.Kind != policypart.PaymentRequired {
		return nil
	}
	keys := map[string]any{paymentStatusKey: paymentStatus(resolution.Outcome, state)}
	if state.Terminal() {
		if receipts := receiptsOf(turn, resolution); receipts != nil {
			keys[paymentReceiptsKey] = receipts
		}
		if captured := capturedStatus(turn); captured != "" {
			keys[paymentStatusKey] = captured
		}
	}
	return keys
}

func paymentStatus(outcome string, state a2a.TaskState) string {
	switch {
	case outcome == policypart.OutcomeDenied:
		return paymentRejected
	case outcome != policypart.OutcomePaid:
		return paymentFailed
	case state == a2a.TaskStateCompleted:
		return paymentCompleted
	case state.Terminal():
		return paymentFailed
	}
	return paymentVerified
}

func capturedStatus(turn exchange.TurnRecord) string {
	if turn.Response == nil {
		return ""
	}
	return turn.Response.Metadata[paymentStatusKey]
}

// receiptsOf returns the receipts of the capture, or one that is made of the resolution.
func receiptsOf(turn exchange.TurnRecord, resolution *policypart.Resolution) []any {
	if turn.Response != nil {
		var receipts []any
		if json.Unmarshal([]byte(turn.Response.Metadata[paymentReceiptsKey]), &receipts) == nil && len(receipts) > 0 {
			return receipts
		}
	}
	if resolution.Receipt == "" || resolution.Outcome != policypart.OutcomePaid || stateOf(turn) != a2a.TaskStateCompleted {
		return nil
	}
	receipt := map[string]any{"success": true, "transaction": resolution.Receipt}
	var terms struct {
		Payer   string `json:"payer"`
		Network string `json:"network"`
	}
	if json.Unmarshal(resolution.Data[paymentDataKey], &terms) == nil {
		receipt["network"], receipt["payer"] = terms.Network, terms.Payer
		maps.DeleteFunc(receipt, func(_ string, value any) bool { return value == "" })
	}
	return []any{receipt}
}

// addPayment writes the x402 keys into a status message that is there anyway. A new demand says its own.
func addPayment(message *a2a.Message, turn exchange.TurnRecord, state a2a.TaskState) {
	for key, value := range payment(turn, state) {
		if message.Metadata[paymentStatusKey] != paymentRequired {
			message.SetMeta(key, value)
		}
	}
}

// paid fills the message of a state that needs no words otherwise: x402 clients read the status message. It returns nil
// where there was no payment.
func paid(message *a2a.Message, turn exchange.TurnRecord, state a2a.TaskState) *a2a.Message {
	keys := payment(turn, state)
	status, _ := keys[paymentStatusKey].(string)
	text := paymentSentences[status]
	if text == "" {
		return nil
	}
	message.Metadata, message.Parts = keys, a2a.ContentParts{a2a.NewTextPart(text)}
	return message
}

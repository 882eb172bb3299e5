package demand

import (
	"encoding/json"

	"inbox/exchange"
	"inbox/internal/facilitator"
	"inbox/normalized"
	"inbox/policypart"
)

// notes is what this package keeps beside a demand.
type notes struct {
	Number       int      `json:"number"`                  // counts the demands of a turn from 1
	Paid         string   `json:"paid,omitempty"`          // id of the turn's paid demand, whose money is captured at the end
	Locale       string   `json:"locale,omitempty"`        // of the asker's profile
	Address      string   `json:"address,omitempty"`       // of the asker
	AgentAddress string   `json:"agent_address,omitempty"` // @agent@domain
	Partner      string   `json:"partner,omitempty"`       // of a link_confirm: id of the link demand that it answers
	Agreed       bool     `json:"agreed,omitempty"`        // of a link: the asker agreed and may see the word
	Payment      *payment `json:"payment,omitempty"`
	Capture      *capture `json:"capture,omitempty"`

	Approvals int    `json:"approvals,omitempty"` // counts the approvals of a turn from 1
	Question  string `json:"question,omitempty"`  // of an approval: the begin of the message
	Draft     *draft `json:"draft,omitempty"`     // of an approval: the answer that is held back; nil = the agent wants to do something
}

// payment is what was offered and verified.
type payment struct {
	facilitator.Payment
	Payer string `json:"payer,omitempty"`
}

// States of a capture. capturing without an end means that the process died while the facilitator was asked.
const (
	capturing     = "capturing"
	captured      = "captured"
	captureFailed = "failed"
)

// capture is how far the money went. The response is the work that it was taken for.
type capture struct {
	State    string               `json:"state"`
	Response *normalized.Response `json:"response,omitempty"` // nil when it is too large to be kept here
	Receipt  json.RawMessage      `json:"receipt,omitempty"`
	Reason   string               `json:"reason,omitempty"`
}

// notesOf reads the notes; a demand without any has the zero ones.
func notesOf(i policypart.Issuance) (n notes) {
	_ = json.Unmarshal(i.Notes, &n) // written by this package alone
	return n
}

func (n notes) raw() json.RawMessage {
	body, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	return body
}

// progress is what a resolution tells the next run of its turn about the demands so far.
type progress struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	Paid   string `json:"paid,omitempty"`

	Approvals int `json:"approvals,omitempty"`
}

// progressOf reads it from a turn that was resumed; zero for a first run.
func progressOf(turn exchange.TurnRecord) (p progress) {
	if resolution := turn.Message.PolicyResolution; resolution != nil {
		_ = json.Unmarshal(resolution.Data[NumberKey], &p) // absent or not ours: counts as a first run
	}
	return p
}

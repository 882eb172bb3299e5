package exchange

import (
	"encoding/json"
	"time"

	"inbox/normalized"
)

// Kinds of an Approval.
const (
	ApprovalAction = "action" // the agent wants to do something
	ApprovalReply  = "reply"  // the agent's answer is held back
)

// States of an Approval.
const (
	ApprovalOpen     = "open"
	ApprovalApproved = "approved"
	ApprovalDenied   = "denied"
	ApprovalExpired  = "expired"
	ApprovalDropped  = "dropped" // nobody waits for it any more: the asker wrote again or took the message back
)

// EventApprovalTold is the row on the timeline of a turn that waits for an approval when one of those who may decide has
// been written to; body: {"to","turn"}.
const EventApprovalTold = "approval.told"

// Approval is a decision that somebody else than the asker has to take, for operators. It holds no secret.
type Approval struct {
	ID         string               `json:"id"`   // UUIDv7
	Code       string               `json:"code"` // six characters that people can type
	Kind       string               `json:"kind"`
	Status     string               `json:"status"`
	Agent      string               `json:"agent"`
	TurnID     string               `json:"turn_id"`
	ThreadID   string               `json:"thread_id"`
	Asker      string               `json:"asker"`              // address of whoever wrote the message
	Principal  string               `json:"principal"`          // of the asker
	Via        string               `json:"received_via"`       // by which way the message came
	Question   string               `json:"question,omitempty"` // its beginning
	ActionID   string               `json:"action_id,omitempty"`
	Tool       string               `json:"tool,omitempty"`
	Summary    string               `json:"summary"`
	Preview    json.RawMessage      `json:"preview,omitempty"`
	ApplyInput json.RawMessage      `json:"apply_input,omitempty"`
	Draft      *normalized.Response `json:"draft,omitempty"`     // of ApprovalReply: the answer as it would be sent now
	EditedBy   string               `json:"edited_by,omitempty"` // who changed it last
	DecidedBy  string               `json:"decided_by,omitempty"`
	Reason     string               `json:"reason,omitempty"` // of a denial
	IssuedAt   time.Time            `json:"issued_at"`
	ExpiresAt  time.Time            `json:"expires_at"`
	UpdatedAt  time.Time            `json:"updated_at"`
}

// ApprovalFilter selects approvals, newest first. Empty fields do not restrict.
type ApprovalFilter struct {
	Agent    string
	CodeHash string // policypart.Issuance.CodeHash
	All      bool   // also those that are not open any more
	Before   string // cursor: id of the last row of the page before
	Limit    int    // 1…500
}

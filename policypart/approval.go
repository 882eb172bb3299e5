package policypart

import (
	"encoding/json"
	"strings"
)

// Codes of a consent_required part that another person than the asker decides. An agent writes CodeApproval;
// CodeApprovalReply is the engine's own, for an answer that is held back.
const (
	CodeApproval      = "approval:required"
	CodeApprovalReply = "approval:reply"
)

// ApprovalKey is the member of a part's data that says what is to be approved, and of a resolution's data that says who
// decided.
const ApprovalKey = "dev.mentionable.approval"

// Approval is what an agent wants to do, in the terms of a pending action (agent runtime contract, section 4.10).
type Approval struct {
	ActionID   string          `json:"action_id,omitempty"`
	Tool       string          `json:"tool,omitempty"`
	Summary    string          `json:"summary,omitempty"` // what the person who decides reads
	Preview    json.RawMessage `json:"preview,omitempty"` // what would happen
	ApplyInput json.RawMessage `json:"apply_input,omitempty"`
}

// NeedsApproval reports whether the part is decided by an approver and not by its asker.
func (p Part) NeedsApproval() bool { return p.Kind == ConsentRequired && p.Code == CodeApproval }

// Approval reads what is to be approved. What the data leaves out is taken from the words of the part; "tool_name" is
// read where "tool" is missing, because audit events call it so.
func (p Part) Approval() Approval {
	var given struct {
		Approval
		ToolName string `json:"tool_name"`
	}
	if json.Unmarshal(p.Data[ApprovalKey], &given) != nil { // absent, or of another form: the words say what it is about
		given.Approval, given.ToolName = Approval{}, ""
	}

	read := given.Approval
	read.Tool = orElse(read.Tool, given.ToolName)
	if strings.TrimSpace(read.Summary) == "" {
		read.Summary = p.Message
	}

	read.Preview, read.ApplyInput = present(read.Preview), present(read.ApplyInput)
	return read
}

// present makes nothing of null.
func present(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

package exchange

import "time"

// AuditRecord is one decision about trust that an operator may have to explain: evidence that was not believed, a
// message that was refused at the door, a demand that was tried with the wrong state.
type AuditRecord struct {
	ID        string    `json:"id"` // UUIDv7
	At        time.Time `json:"at"`
	Code      string    `json:"code"` // "<what>:<why>", such as evidence:expired, access:no_rule, state:used
	TurnID    string    `json:"turn_id,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Principal string    `json:"principal,omitempty"` // who tried
	Detail    string    `json:"detail,omitempty"`    // one line for the operator, without secrets
}

// AuditFilter selects audit records, newest first. Empty fields do not restrict.
type AuditFilter struct {
	Code   string // "*" at the end selects all codes that begin so
	TurnID string
	Agent  string
	Before string // cursor: id of the last record of the page before
	Limit  int    // 1…500
}

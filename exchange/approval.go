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
	ApprovalDropped  = "dropped" // no turn waits for it any more: the asker wrote again or took the message back
)

// EventApprovalTold is the row on the timeline of a turn that waits for an approval when one of those who may decide has
// been written to; body: {"to","turn"}.
const EventApprovalTold = "approval.told"

// Approval is a decision that another person than the asker has to take, for operators. It holds no secret.
type Approval struct {
	ID         string               `json:"id"`   // UUIDv7
	Code       string               `json:"code"` // six characters that people can type
	Kind       string               `json:"kind"`
	Status     string               `json:"status"`
	Agent      string               `json:"agent"`
	TurnID     string               `json:"turn_id"`
	ThreadID   string               `json:"thread_id"`
	Asker      string               `json:"asker"`              // address of the sender of the message
	Principal  string               `json:"principal"`          // of the asker
	Via        string               `json:"received_via"`       // by which way the message came
	Question   string               `json:"question,omitempty"` // its beginning
	ActionID   string               `json:"action_id,omitempty"`
	Tool       string               `json:"tool,omitempty"`
	Summary    string               `json:"summary"`
	Preview    json.RawMessage      `json:"preview,omitempty"`
	ApplyInput json.RawMessage      `json:"apply_input,omitempty"`
	Hosts      []string             `json:"hosts,omitempty"`      // names beyond ASCII in what is decided, such as "пример.рф is xn--e1afmkfd.xn--p1ai"
	Draft      *normalized.Response `json:"draft,omitempty"`      // of ApprovalReply: the answer as it would be sent now
	DraftText  string               `json:"draft_text,omitempty"` // Draft as people read it: addresses of links, facts of files, look-alike characters as escapes
	Files      []HeldFile           `json:"files,omitempty"`      // of Draft, in its order
	EditedBy   string               `json:"edited_by,omitempty"`  // who changed it last
	Digest     string               `json:"digest"`               // of all that is shown here; an edit changes it
	DecidedBy  string               `json:"decided_by,omitempty"`
	Reason     string               `json:"reason,omitempty"` // of a denial
	IssuedAt   time.Time            `json:"issued_at"`
	ExpiresAt  time.Time            `json:"expires_at"`
	UpdatedAt  time.Time            `json:"updated_at"`
}

// HeldFile is a file of an answer that is held back.
type HeldFile struct {
	Name   string `json:"name,omitempty"`
	MIME   string `json:"mime,omitempty"`   // as its agent says
	Size   int64  `json:"size,omitempty"`   // bytes; 0 = unknown
	SHA256 string `json:"sha256,omitempty"` // lower-case hex, of the bytes that would be sent; empty = they are at URL, which this server has not read
	URL    string `json:"url,omitempty"`
}

// ApprovalFilter selects approvals, newest first. Empty fields do not restrict.
type ApprovalFilter struct {
	Agent    string
	CodeHash string // policypart.Issuance.CodeHash
	All      bool   // also those that are not open any more
	Before   string // cursor: id of the last row of the page before
	Limit    int    // 1…500
}

// Lists of a ListEntry.
const (
	ListBlock = "block" // senders and hosts that are kept out
	ListAllow = "allow" // senders and hosts that are let in: with federation.mode = "allowlist", and as an exception from a wider block
	ListStop  = "stop"  // who told one agent to stop
	ListPause = "pause" // agents that take nothing and answer nothing until the operator lets them; or all, which take and do not answer
)

// Kinds of what a ListEntry names.
const (
	TargetHost      = "host"      // a domain; "*." in front covers everything below it, too
	TargetAddress   = "address"   // @user@domain, on every protocol
	TargetActor     = "actor"     // the subject of evidence: an actor's IRI, mailto:…, token:…
	TargetPrincipal = "principal" // issuer and subject, as messages show it
	TargetAgent     = "agent"     // one of our agents by its name, in lower case
	TargetAll       = "all"       // every agent of the server; the target is AllAgents
)

// AllAgents is the target of an entry of kind TargetAll.
const AllAgents = "*"

// TargetKinds are the kinds of what the block and the allow list name.
func TargetKinds() []string {
	return []string{TargetHost, TargetAddress, TargetActor, TargetPrincipal}
}

// Closure is why an agent takes no message just now; empty = it does.
type Closure string

// Closures.
const (
	ClosedPaused  Closure = "paused"  // by the operator
	ClosedBacklog Closure = "backlog" // too many messages wait for it
	ClosedDisk    Closure = "disk"    // the server has no room
	ClosedClock   Closure = "clock"   // the clock of the server is wrong
)

// Effects of a ListEntry on ListBlock.
const (
	EffectRefuse = "refuse" // nothing is taken and nothing is sent
	EffectHold   = "hold"   // messages wait for the operator
)

// ListEntry is one line of the operator's lists, or the stop word of one sender to one agent.
type ListEntry struct {
	ID        string    `json:"id"` // UUIDv7
	List      string    `json:"list"`
	Kind      string    `json:"kind"`
	Target    string    `json:"target"`          // canonical
	Agent     string    `json:"agent,omitempty"` // ListStop: which agent
	Effect    string    `json:"effect,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Source    string    `json:"source,omitempty"` // who put it there: operator, import, the sender's own word
	CreatedAt time.Time `json:"created_at"`
}

// ListFilter selects entries, newest first. Empty fields do not restrict.
type ListFilter struct {
	List   string
	Kind   string
	Target string // exact, canonical
	Agent  string
	Before string // cursor: id of the last row of the page before
	Limit  int    // 1…500
}

// ListChange is an entry as one version of the lists left it.
type ListChange struct {
	Entry   ListEntry
	Version int64 // grows with every transaction that changes a list
	Removed bool
}

// Count is what one window of a limit has counted so far, on all nodes together.
type Count struct {
	Key    string    // names limit, subject and beginning of the window
	Amount int64     // to be added when it is written, the sum when it is read
	Ends   time.Time // after that it is no longer needed
}

// AuditRecord is one decision about trust that an operator may have to explain: evidence that was not accepted, a
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

package policypart

import (
	"encoding/json"
	"time"
)

// Purposes of a demand beside the agent's own.
const (
	PurposeLink         = "link"          // the asker says that another address is theirs, too
	PurposeLinkConfirm  = "link_confirm"  // the other address says so
	PurposeLinkComplete = "link_complete" // the asker says so of the address that did
	PurposeApproval     = "approval"      // another person than the asker decides
)

// Statuses of an Issuance: issued → claimed → resolved | denied | expired, or dropped when no turn waits for it any more.
const (
	StatusIssued   = "issued"
	StatusClaimed  = "claimed"
	StatusResolved = "resolved"
	StatusDenied   = "denied"
	StatusExpired  = "expired"
	StatusDropped  = "dropped"
)

// Issuance is the record of one demand that was made (message contract, section 9). What it asks for is frozen here:
// a resolution is held against these terms and never against today's configuration.
type Issuance struct {
	ID         string // UUIDv7
	StateHash  string // lower-case hex SHA-256 of the state in the address; the state itself is stored nowhere
	TurnID     string
	Agent      string
	ThreadID   string
	MessageID  string
	Via        string
	Principal  string     // of the asker
	Asker      []Resolver // the asker's identities
	Kind       string
	Purpose    string
	Part       Part   // as issued; its url carries the id, not the state
	Action     string // hash of the frozen terms
	CodeHash   string // of the word that the other side of a link has to send; empty otherwise
	IssuedAt   time.Time
	ExpiresAt  time.Time
	UpdatedAt  time.Time
	Status     string
	Resolution *Resolution     // without the state; nil until settled
	Notes      json.RawMessage // of engine/demand alone: payment, capture, the sides of a link
}

package exchange

import "time"

// Kinds of a MailFailure and of a Suppression.
const (
	FailureHard      = "hard"      // there is no such mailbox: one is enough
	FailureSoft      = "soft"      // the mailbox took nothing: MaxSoftFailures within SoftFailureWindow are enough
	FailureComplaint = "complaint" // its owner reported our mail as unwanted: one is enough
)

// After so many soft failures of different mails in so long an address is suppressed.
const (
	MaxSoftFailures   = 5
	SoftFailureWindow = 7 * 24 * time.Hour
)

// Events of the timeline that come after a mail had left.
const (
	EventDeliveryBounced   = "delivery.bounced"   // body: {"destination","reason"}; it was taken and came back
	EventDeliveryDelayed   = "delivery.delayed"   // body: {"destination","reason"}; a server on the way still tries
	EventDeliveryComplaint = "delivery.complaint" // body: {"destination","reason"}; the recipient reported it as unwanted
)

// MailFailure says that an address took no mail.
type MailFailure struct {
	Address    string // lower-case
	Kind       string // FailureHard, FailureSoft or FailureComplaint
	Reason     string // what its server said
	DeliveryID string // counts once for an address
	At         time.Time
}

// Suppression is an address to which nothing is sent any more.
type Suppression struct {
	Address    string    `json:"address"` // lower-case
	Kind       string    `json:"kind"`
	Reason     string    `json:"reason"`
	DeliveryID string    `json:"delivery_id,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
}

// SuppressionFilter selects suppressed addresses, in order of the address. Empty fields do not restrict.
type SuppressionFilter struct {
	Kind  string
	After string // address of the last row of the page before
	Limit int    // 1…500
}

// Bounce is what a report says about a delivery that had left.
type Bounce struct {
	DeliveryID string
	Recipient  string // lower-case
	Event      string // EventDeliveryBounced, EventDeliveryDelayed or EventDeliveryComplaint
	Reason     string
}

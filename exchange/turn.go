package exchange

import (
	"encoding/json"
	"strconv"
	"time"

	"inbox/normalized"
)

// States of a turn. Transitions are conditional updates in the store and each writes a row to the timeline.
const (
	StateAccepted  = "accepted"
	StateRunning   = "running"
	StateAnswered  = "answered"
	StateRefused   = "refused"
	StateFailed    = "failed"
	StateWaiting   = "waiting" // for consent, payment, approval or a tool; the reason says which
	StateSilent    = "silent"
	StateHeld      = "held"      // unverified sender; waits for the operator
	StateCancelled = "cancelled" // the sender took it back before an answer
)

// Terminal reports whether a turn in the state will not change by itself any more.
func Terminal(state string) bool {
	switch state {
	case StateAnswered, StateRefused, StateFailed, StateSilent, StateCancelled:
		return true
	}
	return false
}

// Settled reports whether nobody needs to wait for a turn in the state any longer: it ended, or it waits for somebody
// itself.
func Settled(state string) bool {
	return Terminal(state) || state == StateWaiting || state == StateHeld
}

// TurnRecord is the stored row of one message to one agent and its answer.
type TurnRecord struct {
	ID        string             `json:"id"`        // UUIDv7
	Agent     string             `json:"agent"`     // name, the local part of the address
	Principal string             `json:"principal"` // normalized.Sender.Principal of the sender
	ThreadID  string             `json:"thread_id"`
	Reference string             `json:"reference,omitempty"`
	State     string             `json:"state"`
	Reason    string             `json:"reason,omitempty"` // why it is in the state, for the operator
	Attempt   int                `json:"attempt"`          // runs started so far
	Channel   string             `json:"channel"`          // by which the message came and its answer leaves; see Module.Name
	Message   normalized.Message `json:"message"`          // with PolicyResolution and ReceivedTrace once it was resumed
	Shared    bool               `json:"-"`                // the agent's history follows the person, so that it is looked up by sender
	Route     json.RawMessage    `json:"-"`
	// Network names the network (/32 of IPv4, /64 of IPv6) of a sender without proof by a keyed hash; empty for senders with
	// proof and where the address is not known. It stands for such a sender wherever senders get a share of something.
	Network    string               `json:"-"`
	ReplyID    string               `json:"reply_id,omitempty"` // empty until answered
	Response   *normalized.Response `json:"response,omitempty"` // nil until answered
	AcceptedAt time.Time            `json:"accepted_at"`
	UpdatedAt  time.Time            `json:"updated_at"`
	ExpiresAt  *time.Time           `json:"expires_at,omitempty"` // when a held message leaves hold by itself; lists have it
}

// TurnFilter selects turns, newest update first. Empty fields do not restrict. What is listed page by page names what the
// list is about: a thread, an owner (agent and principal) with ByArrival or Latest, or States; then a page costs the same
// whatever else is stored.
type TurnFilter struct {
	Agent        string
	Principal    string
	ThreadID     string
	Reference    string
	MessageID    string // native id of the message
	ReceivedVia  string
	States       []string
	Standing     string // with Latest; see StandingOf
	UpdatedAfter time.Time
	// AcceptedAfter restricts what is listed ByArrival to turns that were accepted at the instant or later, to a millisecond.
	AcceptedAfter time.Time

	Before    string // TurnCursor of the last row of the page before
	Limit     int    // 1…500
	Latest    bool   // only the newest turn of each (agent, principal, reference); turns without reference are left out
	ByArrival bool   // newest arrival first instead of newest update
}

// TurnCursor names a row of a list of turns: "<updated_at microseconds>.<turn id>".
func TurnCursor(turn TurnRecord) string {
	return strconv.FormatInt(turn.UpdatedAt.UnixMicro(), 10) + "." + turn.ID
}

// Kinds of an Event beside the turn's states, which are written as "turn.<state>".
const (
	EventDelta            = "delta"          // body: normalized.Delta
	EventRestarted        = "turn.restarted" // a run ended without an answer and starts again; earlier deltas are void
	EventDeliverySent     = "delivery.sent"  // body: {"destination","detail"}
	EventDeliveryRetry    = "delivery.retry" // body: {"destination","reason","at"}
	EventDeliveryDead     = "delivery.dead"  // body: {"destination","reason"}
	EventDeliveryCanceled = "delivery.cancelled"
	EventAcknowledged     = "acknowledged"    // the asker is told that the turn takes long
	EventMessageEdited    = "message.edited"  // by its sender; body of the first: {"original":[parts]}
	EventMessageDeleted   = "message.deleted" // by its sender
	EventReaction         = "reaction"        // body: Reaction
	EventReactionGone     = "reaction.gone"   // body: Reaction
	EventReplyEdited      = "reply.edited"    // by the operator; body: {"revision","by"}
	EventReplyDeleted     = "reply.deleted"   // by the operator; body: {"by"}
)

// Event is one row of a turn's timeline. Streams read events by Seq, which grows by one inside a turn.
type Event struct {
	TurnID string          `json:"turn_id"`
	Seq    int64           `json:"seq"`
	Kind   string          `json:"kind"`
	Body   json.RawMessage `json:"body,omitempty"`
	At     time.Time       `json:"at"`
}

// ThreadEntry is one stored message, found by its native id or by the native id of its reply.
type ThreadEntry struct {
	TurnID    string
	ThreadID  string
	Reference string
	Message   normalized.Message
	Route     json.RawMessage
}

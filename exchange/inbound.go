// Package exchange is what adapters and the engine hand to each other: a message on its way in with the things
// that only the server needs, a reply on its way out, the stored record of a turn and its events. Agents never see
// these types; their contract is package normalized. It holds shapes only and does no input or output.
package exchange

import (
	"encoding/json"
	"net/netip"
	"time"

	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Inbound is a message on its way in. None of the extra fields ever reaches an agent.
type Inbound struct {
	Message normalized.Message // Raw.MediaType set by the adapter; Raw.Ref is computed on acceptance
	Channel string             // name of the adapter's channel, by which the answer leaves (Module.Name); required

	Original  []byte          // the native bytes as received; stored once, content-addressed
	Route     json.RawMessage // the adapter's own notes on how to answer; opaque to everybody else but for RouteWords
	Reference string          // the adapter's conversation handle beside the thread (A2A: task id); may be empty
	Repeats   bool            // the peer reads a refusal and sends the same message again by itself, as mail servers do
	Quiet     bool            // the sender asks programs not to write unasked (#nobot): no notice, no acknowledgement
	NoReply   string          // why this must never be answered (automatic mail, loop); the turn is stored as silent

	AnswerOf time.Time // when our answer was made that this one answers; zero = it answers none of ours, or nobody knows
	// Opens says that nothing of the message's thread came before it: nothing has to be looked up about the thread.
	Opens bool

	// Client is the address that brought the message, behind trusted proxies; the zero Addr = unknown. It is never stored: a
	// sender without proof is counted by a keyed hash of its network (TurnRecord.Network).
	Client netip.Addr

	NewThread bool // Message.ThreadID was made for this message, and nobody else can know it yet

	FromAgent  bool                 // the sender is a program that answers by itself: automated actor, chained task, mail with the chain hint
	Continues  string               // id of a parked turn that this message takes up; the parked turn is dropped
	Claim      *Claim               // a document of the adapter that stands or falls with the message; nil = none
	Settlement *Settlement          // what the message offers for an open demand; nil = nothing
	Rejected   []identity.Rejection // evidence that was offered and not believed; it becomes audit rows
}

// RouteWords is the member of Inbound.Route under which an adapter keeps what of a message's own words the normalized form does
// not have. It is removed when the message is erased.
const RouteWords = "words"

// Settlement is what a message offers to meet a demand. Nothing in it is believed before the eight checks of the
// message contract, section 9.
type Settlement struct {
	Resolution *policypart.Resolution // as the peer wrote it; InReplyToState names the demand
	Payment    json.RawMessage        // x402 payment payload for the demand of Inbound.Continues
	Envelopes  []identity.Evidence    // signed resumption envelopes of Connectors, already validated as evidence
}

// Receipt tells an adapter what became of an accepted message.
type Receipt struct {
	TurnID    string
	New       bool   // false: the same message was accepted before and nothing was done
	State     string // state of the turn, see the State constants
	Reference string // Inbound.Reference of the stored turn; for a duplicate, that of the first copy
	Claimed   []byte // the document in the place of Inbound.Claim; nothing was stored then
}

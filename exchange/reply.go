package exchange

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"inbox/identity"
	"inbox/normalized"
)

// Reply is a response on its way out, before it is split into deliveries. The store keeps it; adapters render it.
type Reply struct {
	ID        string             // UUIDv7, final before the first attempt; adapters derive their wire ids from it
	TurnID    string             //
	Notice    int                // 0 = the answer; 1… = a demand or an answer that was sent before it; NoticeAck, NoticeDraft
	Agent     string             // name of the answering agent
	Message   normalized.Message // the question, without history
	Channel   string             // by which the question came and the reply leaves
	Route     json.RawMessage    // as given with the question
	Response  normalized.Response
	Encoded   []byte    // Response as JSON, for who stores the reply; empty = the store encodes it
	CreatedAt time.Time // every rendering carries this time, so that a repeat is the same message

	Posts     int       // of how many messages it consists on the wire; 0 and 1 = one
	Open      bool      // it is public, so that it may be listed
	Revision  int       // how often it was edited
	EditedAt  time.Time // zero = never
	DeletedAt time.Time // zero = it stands; otherwise Response has no parts any more
}

// MetadataAsked is a key of Response.Metadata that only the engine writes: "true" = the turn asked its asker for something in private,
// and the agent did not name other readers of what it said then.
const MetadataAsked = "asked_in_private"

// Private reports whether a reply is for its asker, and for those whom the agent named in to and cc, even if others had the question:
// a demand or a refusal by policy, an acknowledgement, and what has the visibility "direct".
func (r Reply) Private() bool {
	return r.Notice == NoticeAck || r.HasPolicy() || r.Response.Visibility == normalized.VisibilityDirect
}

// Confidential reports whether a reply goes where a demand goes, to the asker's proven address and to no other that the question asks
// it to be sent to: a demand, and what was made possible by one.
func (r Reply) Confidential() bool {
	return r.HasPolicy() || r.Response.Metadata[MetadataAsked] != ""
}

// HasPolicy reports whether a reply has a demand or a refusal by policy.
func (r Reply) HasPolicy() bool {
	return slices.ContainsFunc(r.Response.Parts, func(part normalized.Part) bool { return part.Kind == normalized.PartPolicy })
}

// NoticeAck is the Notice of an acknowledgement: a turn that takes long tells its asker once that it is being worked on.
// It is no answer and no part of the history.
const NoticeAck = -1

// Plan is an adapter's decision about a reply: its wire id and where it has to go.
type Plan struct {
	NativeID     string        // the id that peers will see: note IRI, Message-ID; empty where the peer fetches the answer
	Destinations []Destination // one delivery each; empty = the peer fetches the answer (A2A)
	Posts        int           // see Reply.Posts
	Open         bool          // see Reply.Open
	Spread       bool          // there may be further destinations, which Spreader.Spread returns
}

// Destination is one place that a reply has to reach.
type Destination struct {
	Key     string          // host or domain: breaker, concurrency and order are kept per key
	Address string          // shown to operators
	Data    json.RawMessage // the adapter's own notes
}

// Delivery is one attempt to bring a reply to one destination.
type Delivery struct {
	ID          string
	Attempt     int      // from 1; from 1 again when the operator retries
	Repeated    bool     // false = no earlier attempt can have reached the peer
	Done        []string // what earlier attempts returned as DeliveryReceipt.Done
	Reply       Reply
	NativeID    string
	Destination Destination
	Action      string // what the peer is told; see the Action constants
}

// What a delivery tells about a reply.
const (
	ActionSend   = ""       // the reply itself
	ActionUpdate = "update" // it was edited
	ActionDelete = "delete" // it was taken back
)

// DeliveryReceipt is what the peer said.
type DeliveryReceipt struct {
	Detail  string            // status line or reply text, cleaned, at most 512 bytes
	Refused map[string]string // those of several recipients who were refused for good, and why; nil = none
	// Done are those of several recipients who need no further attempt although others do: they have the message, or were refused
	// for good. They are kept with the delivery until it goes.
	Done []string
}

// Channel is what the engine needs of an adapter to answer. Plan is pure: no network, no clock. Deliver makes one
// attempt and classes its errors with fault.RetryIn and fault.GiveUp; an unclassed error is retried on the schedule. Refused and Done
// of a receipt count beside an error, too.
type Channel interface {
	Plan(ctx context.Context, reply Reply) (Plan, error)
	Deliver(ctx context.Context, delivery Delivery) (DeliveryReceipt, error)
}

// Acknowledger is a Channel whose askers do not see by themselves that their question is being worked on. The engine
// plans and delivers a reply with the number NoticeAck for a turn that takes long.
type Acknowledger interface {
	Channel
	// AckAfter returns how long after its acceptance a turn is acknowledged, where the operator wants it after the given
	// time; zero or less = not at all. It is pure.
	AckAfter(wanted time.Duration) time.Duration
}

// Awaited is a Channel some of whose askers wait on an open connection for the answer. A run that failed is repeated for
// them within a minute or not at all; others are answered hours later.
type Awaited interface {
	Channel
	// Awaits reports whether the asker of the question with the route does. It is pure.
	Awaits(route json.RawMessage) bool
}

// Spreader is a Channel whose replies may go to more places than one transaction should hold, such as followers.
type Spreader interface {
	Channel
	// Spread returns the next of them, none of which is in the Plan, at most a few hundred at once. The cursor is empty at
	// the beginning, and the next one is empty at the end.
	Spread(ctx context.Context, reply Reply, cursor string) (destinations []Destination, next string, err error)
}

// Reviser is an adapter whose peers can be told that a reply was edited or taken back. Every destination that may have
// the reply gets a Delivery with the Action then. Adapters without it refuse both.
type Reviser interface {
	// Revisable says why this reply cannot be changed; nil = it can. It is pure.
	Revisable(reply Reply, nativeID string) error
	// PostsOf returns of how many messages the edited reply consists: never more than reply.Posts. It is pure.
	PostsOf(reply Reply) int
}

// RetryFilter selects what the operator wants to run again: failed turns, dead deliveries or dead jobs. Empty fields do not restrict.
type RetryFilter struct {
	Agent   string
	Channel string    // by which the message came, or the answer leaves
	Since   time.Time // only those that failed later
	Limit   int       // how many of those that failed last; 0 = as many as one call does
}

// AtMost returns the limit, or what one call does at most where that is less or no limit is set.
func (f RetryFilter) AtMost(most int) int {
	if f.Limit > 0 {
		return min(f.Limit, most)
	}
	return most
}

// RetryRate is how much is run again in a second when much is run again at once.
const RetryRate = 5

// RetriedWork says what became of dead deliveries or dead jobs.
type RetriedWork struct {
	Retried int       `json:"retried"`
	Skipped int       `json:"skipped"`
	More    bool      `json:"more"` // there are others: call again
	Work    []Retried `json:"work"`
}

// Retried is one of them.
type Retried struct {
	ID       string    `json:"id"`
	TurnID   string    `json:"turn_id,omitempty"` // empty for work that belongs to no message
	Agent    string    `json:"agent,omitempty"`
	Channel  string    `json:"channel,omitempty"`
	What     string    `json:"what"` // the address of a delivery, the kind of a job
	FailedAt time.Time `json:"failed_at"`
	Failure  string    `json:"failure,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // why it does not run again; empty = it does
}

// RetryResult says what became of them.
type RetryResult struct {
	Retried int           `json:"retried"`
	Skipped int           `json:"skipped"`
	More    bool          `json:"more"` // there are others: call again
	Turns   []RetriedTurn `json:"turns"`
}

// RetriedTurn is one of them.
type RetriedTurn struct {
	ID       string                 `json:"id"`
	Agent    string                 `json:"agent"`
	Sender   identity.StatedAddress `json:"sender"`
	FailedAt time.Time              `json:"failed_at"`
	Failure  string                 `json:"failure,omitempty"`
	Skipped  string                 `json:"skipped,omitempty"` // why it does not run again; empty = it does
}

// Kinds of a MailFailure and of a Suppression.
const (
	FailureHard      = "hard"      // there is no such mailbox: one is enough
	FailureSoft      = "soft"      // the mailbox took nothing: MaxSoftFailures within SoftFailureWindow are enough
	FailureComplaint = "complaint" // its owner reported our mail as unwanted: one is enough
)

// SuppressionKinds are the kinds of a MailFailure and of a Suppression.
func SuppressionKinds() []string { return []string{FailureHard, FailureSoft, FailureComplaint} }

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
	Hearsay    bool   // the reporter does not speak for the address: the soft failures that they report count once a day, whatever the deliveries
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

// WatchKind is the queue kind of the jobs that tell a watch what happened; the payload is a WatchJob.
const WatchKind = "watch"

// Limits of watches.
const (
	MaxWatches         = 5    // of one reference
	MaxWatchesOfSender = 1000 // of one principal at one agent
)

// Watch is a wish of a peer to be told of every change of the turns with a reference (A2A: a webhook of a task). It ends
// when its peer deletes it, or WatchLife after its making.
type Watch struct {
	ID        string // UUIDv7
	Agent     string // name
	Principal string // of the peer, who alone sees it
	Reference string
	Name      string          // the peer's own name for it, unique for the reference
	Data      json.RawMessage // the adapter's own; secrets in it are sealed
	CreatedAt time.Time
}

// WatchLife is how long a watch lives.
const WatchLife = 30 * 24 * time.Hour

// WatchJob says which change a watch is to be told of.
type WatchJob struct {
	WatchID string    `json:"watch"`
	TurnID  string    `json:"turn"`
	State   string    `json:"state"` // the turn's new state
	At      time.Time `json:"at"`
}

// Claim is a private document of an adapter that is written in one transaction with what it is about. Nothing at all is
// written when another document has its place, so that of two messages about one thing the first wins on every node.
type Claim struct {
	Namespace, Key string
	Value          []byte
	Instead        []byte    // a document that gives way to Value; nil = none does
	Expires        time.Time // when the document is forgotten; zero = never

	// Alias is another name of what the document is about; empty = none. It is kept in AliasNamespace with the Key as its value
	// where the document is written first, unless the name is taken.
	AliasNamespace, Alias string
}

// Revision is an edit of a message by its sender.
type Revision struct {
	MessageID string
	Principal string // who proved to be its sender
	// Rewrite returns the new parts, and the new notes on how to answer, of the copy that one agent got; no parts = the
	// copy stays. It is called inside a transaction and may be called twice.
	Rewrite func(recipient string, route json.RawMessage) ([]normalized.Part, json.RawMessage)
	Claim   *Claim // fault.Conflict when another document has its place
}

// Reaction is a sign under an answer that asks for nothing: a like, an emoji, a share.
type Reaction struct {
	Type    string `json:"type"`              // the protocol's own word: Like, EmojiReact, Announce
	Actor   string `json:"actor"`             // who
	Content string `json:"content,omitempty"` // the emoji
}

package exchange

import (
	"context"
	"encoding/json"
	"time"

	"inbox/normalized"
)

// Reply is a response on its way out, before it is split into deliveries. The store keeps it; adapters render it.
type Reply struct {
	ID        string             // UUIDv7, final before the first attempt; adapters derive their wire ids from it
	TurnID    string             //
	Notice    int                // 0 = the answer; 1… = a demand that was sent before it; NoticeAck
	Agent     string             // name of the answering agent
	Message   normalized.Message // the question, without history
	Channel   string             // by which the question came and the reply leaves
	Route     json.RawMessage    // as given with the question
	Response  normalized.Response
	CreatedAt time.Time // every rendering carries this time, so that a repeat is the same message

	Posts     int       // of how many messages it consists on the wire; 0 and 1 = one
	Open      bool      // everybody may read it, so that it may be listed
	Revision  int       // how often it was edited
	EditedAt  time.Time // zero = never
	DeletedAt time.Time // zero = it stands; otherwise Response has no parts any more
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
	Spread       bool          // there may be further destinations, which Spreader.Spread gives
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
	Attempt     int // from 1
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
	Refused map[string]string // those of several recipients who were refused for good, and why; nil = nobody
}

// Channel is what the engine needs of an adapter to answer. Plan is pure: no network, no clock. Deliver makes one
// attempt and classes its errors with fault.RetryIn and fault.GiveUp; an unclassed error is retried on the schedule.
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

package exchange

import "time"

// Lists of a ListEntry.
const (
	ListBlock = "block" // who is kept out
	ListAllow = "allow" // who is let in: with federation.mode = "allowlist", and as an exception from a wider block
	ListStop  = "stop"  // who told one agent to stop
	ListPause = "pause" // agents that take nothing and answer nothing until the operator lets them
)

// Kinds of what a ListEntry names.
const (
	TargetHost      = "host"      // a domain; "*." in front covers everything below it, too
	TargetAddress   = "address"   // @user@domain, on every protocol
	TargetActor     = "actor"     // the subject of evidence: an actor's IRI, mailto:…, token:…
	TargetPrincipal = "principal" // issuer and subject, as messages show it
	TargetAgent     = "agent"     // one of our agents by its name, in lower case
)

// Closure is why an agent takes no message just now; empty = it does.
type Closure string

// Closures.
const (
	ClosedPaused  Closure = "paused"  // by the operator
	ClosedBacklog Closure = "backlog" // too many messages wait for it
	ClosedDisk    Closure = "disk"    // the server has no room
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
	Ends   time.Time // after that nobody needs it
}

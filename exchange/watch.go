package exchange

import (
	"encoding/json"
	"time"
)

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

package operator

import (
	"context"
	"time"

	"inbox/engine/store"
)

// Backlog is what the server has still to do.
type Backlog struct {
	Kinds []WaitingJobs `json:"kinds"`
	Peers []SlowPeer    `json:"peers"`          // the one first whose deliveries wait longest
	More  bool          `json:"more,omitempty"` // there is more than the oldest 10,000 jobs, which are counted
}

// WaitingJobs is what waits of one kind of work.
type WaitingJobs = store.WaitingJobs

// SlowPeer is a destination to which deliveries are under way.
type SlowPeer = store.SlowPeer

// slowestPeers is how many destinations Backlog lists.
const slowestPeers = 50

// Backlog returns what waits, by kind and by destination.
func (j Jobs) Backlog(ctx context.Context) (found Backlog, err error) {
	kinds, looked, err := j.store.Backlog(ctx, time.Now())
	if err != nil {
		return found, err
	}
	peers, err := j.store.SlowPeers(ctx, slowestPeers)
	return Backlog{Kinds: listed(kinds), Peers: listed(peers), More: looked == store.MaxBacklog}, err
}

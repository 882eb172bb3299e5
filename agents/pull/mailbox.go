package pull

import (
	"context"
	"time"
)

// Mailbox is what the nodes share: small documents in namespaces, each with an end. PutIfAbsent decides who takes a turn
// and how it ended, so it must be atomic; a document that was acknowledged must be seen by the next List of any node.
// The store's State is one.
type Mailbox interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Delete(ctx context.Context, namespace, key string) error
	// List returns documents with keys after the given one, in byte order of their keys.
	List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
}

// One offer of one attempt of a turn is a run; its id, a UUIDv7, is also the id of the lease. What is kept:
//
//	pull.offers/{agent}  {run}       offer     runs that nobody has taken, oldest first
//	pull.turns/{agent}   {turn}      pointer   the run of a turn, for who takes the turn over from a dead node
//	pull.requests        {run}       Request   what the program gets
//	pull.run/{run}       d{number}   []Delta   deltas, by the number of the first one
//	                     s-beat      text      last sign of life
//	                     s-claim     claim     the first one to write it has the run: a program, or the node to close it
//	                     s-end       end       the first one to write it decides how the run ended
const (
	offersSpace   = "pull.offers/"
	turnsSpace    = "pull.turns/"
	requestsSpace = "pull.requests"
	runSpace      = "pull.run/"

	beatKey  = "s-beat"
	claimKey = "s-claim"
	endKey   = "s-end"
	states   = "s" // List after it leaves the deltas out
)

type offer struct {
	Turn    string    `json:"turn"`
	Attempt int       `json:"attempt"`
	Until   time.Time `json:"until"` // end of all documents of the run
}

type claim struct {
	Closed  bool      `json:"closed,omitempty"` // by the node that offered it: nobody can take it any more
	Agent   string    `json:"agent,omitempty"`
	Turn    string    `json:"turn,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Until   time.Time `json:"until,omitzero"`
}

type pointer struct {
	Run         string    `json:"run"`
	Owner       string    `json:"owner"` // of the Handle that looks after the run
	Fingerprint string    `json:"fingerprint"`
	Until       time.Time `json:"until"`
}

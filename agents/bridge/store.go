package bridge

import (
	"context"
	"time"
)

// Query chooses items of one client.
type Query struct {
	Limit    int      // how many at most, 1 to MaxLimit
	Sessions []string // only items of these sessions; empty = of all, those without one too
}

// Store keeps clients and items. Ids and names come in their one form and are compared byte by byte. Its conformance
// suite is bridgetest.Store.
type Store interface {
	// PutClient keeps a client; one with the same id is replaced.
	PutClient(ctx context.Context, client Client) error

	// Client gives a client by its id.
	Client(ctx context.Context, id string) (Client, bool, error)

	// Enqueue keeps an item at the end, durably before it returns. An item with the same id is replaced where it stands,
	// and a lease on it ends, if it belongs to the same client; ErrForeign if it belongs to another. Check and change
	// are one step. ErrFull when there is no room.
	Enqueue(ctx context.Context, item Item) error

	// Pending gives the items that were not acknowledged, in the order in which they came, whatever their status and
	// whether they are leased or not.
	Pending(ctx context.Context, client string, query Query) ([]Item, error)

	// Lease is Pending for several workers of one client: it leaves out items with a lease and leases what it gives for
	// the time, in one step. A lease ends by itself and removes nothing.
	Lease(ctx context.Context, client string, query Query, duration time.Duration) ([]Item, error)

	// Attempted keeps the status of an attempt to deliver an item; false when the client has no such item any more.
	Attempted(ctx context.Context, client, id string, status Status) (bool, error)

	// Ack removes the items of the client with these ids and says how many there were. Other ids are passed over,
	// those of other clients' items too.
	Ack(ctx context.Context, client string, ids []string) (int, error)
}

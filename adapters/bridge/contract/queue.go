package contract

import (
	"context"
	"slices"
	"time"
)

// ErrForeign is what a Store returns for an item whose id another client's item has.
var ErrForeign error = &Error{CodeInvalid, "Cannot overwrite a queue item owned by another client."}

// ErrFull is what a Store returns when it has no room. Nothing is dropped to make some.
var ErrFull error = &Error{CodeFull, "The queue of this client is full until it acknowledges what it has."}

// DefaultMaxItems is how many items of each client a Store keeps.
const DefaultMaxItems = 10_000

// Limits of Bridge.Pending.
const (
	DefaultLimit = 25
	MaxLimit     = 1000
)

// Bridge is the protocol over a store: it brings everything into its one form first. It is safe for concurrent use.
type Bridge struct {
	Store Store
}

// Register keeps a client and returns it in its one form; registering again replaces it.
func (b Bridge) Register(ctx context.Context, value map[string]any) (Client, error) {
	client, err := NormalizeClient(value)
	if err != nil {
		return Client{}, err
	}
	return client, b.Store.PutClient(ctx, client)
}

// Client finds a registered client.
func (b Bridge) Client(ctx context.Context, id string) (Client, bool, error) {
	return b.Store.Client(ctx, Slug(id))
}

// Enqueue keeps an item for its client and returns it in its one form. An item of the same client with the same id is
// replaced, so that a repeat after a crash is no second item; ErrForeign refuses the id of another client's.
func (b Bridge) Enqueue(ctx context.Context, value map[string]any) (Item, error) {
	item, err := NormalizeItem(value)
	if err != nil {
		return Item{}, err
	}
	return item, b.Store.Enqueue(ctx, item)
}

// Pending returns what the client has not acknowledged. A limit below one is one, of zero DefaultLimit, over MaxLimit
// MaxLimit; empty sessions are ignored.
func (b Bridge) Pending(ctx context.Context, client string, limit int, sessions []string) ([]Item, error) {
	return b.Store.Pending(ctx, Slug(client), query(limit, sessions))
}

// Lease is Pending for one of several workers: no other worker gets the same items by Lease until the time is over.
func (b Bridge) Lease(ctx context.Context, client string, limit int, sessions []string, duration time.Duration) ([]Item, error) {
	return b.Store.Lease(ctx, Slug(client), query(limit, sessions), duration)
}

func query(limit int, sessions []string) Query {
	if limit == 0 {
		limit = DefaultLimit
	}
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(session string) bool { return session == "" })
	return Query{Limit: min(max(1, limit), MaxLimit), Sessions: sessions}
}

// Attempted keeps what came of delivering an item to its client's callback. Whatever it was, the item stays pending.
func (b Bridge) Attempted(ctx context.Context, client, id string, delivered bool) (bool, error) {
	status := Failed
	if delivered {
		status = Delivered
	}
	return b.Store.Attempted(ctx, Slug(client), id, status)
}

// Ack removes the client's own items with these ids and returns how many there were.
func (b Bridge) Ack(ctx context.Context, client string, ids []string) (int, error) {
	return b.Store.Ack(ctx, Slug(client), ids)
}

// Query chooses items of one client.
type Query struct {
	Limit    int      // how many at most, 1 to MaxLimit
	Sessions []string // only items of these sessions; empty = of all, those without one too
}

// Store keeps clients and items. Ids and names come in their one form and are compared byte by byte. Its conformance
// suite is contracttest.Store.
type Store interface {
	// PutClient keeps a client; one with the same id is replaced.
	PutClient(ctx context.Context, client Client) error

	// Client returns a client by its id.
	Client(ctx context.Context, id string) (Client, bool, error)

	// Enqueue keeps an item at the end, durably before it returns. An item with the same id is replaced where it stands,
	// and a lease on it ends, if it belongs to the same client; ErrForeign if it belongs to another. Check and change
	// are one step. ErrFull when there is no room.
	Enqueue(ctx context.Context, item Item) error

	// Pending returns the items that were not acknowledged, in the order in which they came, whatever their status and
	// whether they are leased or not.
	Pending(ctx context.Context, client string, query Query) ([]Item, error)

	// Lease is Pending for several workers of one client: it leaves out items with a lease and leases what it returns for
	// the time, in one step. A lease ends by itself and removes nothing.
	Lease(ctx context.Context, client string, query Query, duration time.Duration) ([]Item, error)

	// Attempted keeps the status of an attempt to deliver an item; false when the client has no such item any more.
	Attempted(ctx context.Context, client, id string, status Status) (bool, error)

	// Ack removes the items of the client with these ids and returns how many there were. Other ids are passed over,
	// those of other clients' items too.
	Ack(ctx context.Context, client string, ids []string) (int, error)
}

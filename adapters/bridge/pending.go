package bridge

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

var waiters = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_bridge_waiters", Help: "Bridges that wait for items on this node, by long poll or stream.",
})

const (
	lookEvery  = 5 * time.Second // the safety net behind the notifier
	maxWaiters = 64              // of one client on this node
)

// pending returns what the client has not acknowledged, leased where it asks for that. With wait it is a long poll: the
// answer comes as soon as there is something, or empty when the time is over.
func (q *queues) pending(w http.ResponseWriter, r *http.Request, c caller) error {
	chosen, err := q.selection(r, c)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return q.events(w, r, c)
	}

	patience, err := q.patience(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}

	items, err := q.await(r, chosen, patience)
	if err != nil {
		return err
	}

	list := make([]map[string]any, 0, len(items))
	for _, item := range items {
		list = append(list, item.Value())
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"client_id": chosen.client, "items": list})
	return nil
}

func (q *queues) read(ctx context.Context, chosen selection) ([]contract.Item, error) {
	if chosen.lease > 0 {
		return q.bridge.Lease(ctx, chosen.client, chosen.limit, chosen.sessions, chosen.lease)
	}
	return q.bridge.Pending(ctx, chosen.client, chosen.limit, chosen.sessions)
}

// await reads until there is something, at most the given time and not while the server stops.
func (q *queues) await(r *http.Request, chosen selection, patience time.Duration) ([]contract.Item, error) {
	if patience <= 0 {
		return q.read(r.Context(), chosen)
	}

	wake, leave, err := q.enter(chosen.client)
	if err != nil {
		return nil, err
	}
	defer leave()

	over := time.NewTimer(patience)
	defer over.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		items, err := q.read(r.Context(), chosen)
		if err != nil || len(items) > 0 {
			return items, err
		}
		select {
		case <-wake:
		case <-look.C:
		case <-over.C:
			return nil, nil
		case <-httpserver.Stopping(r.Context()):
			return nil, nil
		case <-r.Context().Done():
			return nil, nil
		}
	}
}

// enter counts the requests that wait for a client, so that one program cannot hold all connections.
func (q *queues) enter(client string) (wake <-chan struct{}, leave func(), err error) {
	q.notifier.mu.Lock()
	waiting := len(q.notifier.waiting[client])
	q.notifier.mu.Unlock()
	if waiting >= maxWaiters {
		return nil, nil, &fault.Fault{Kind: fault.RateLimited, Public: "too many requests of this client wait already", RetryAfter: time.Second}
	}
	wake, left := q.notifier.listen(client)
	waiters.Inc()
	return wake, func() { left(); waiters.Dec() }, nil
}

// events returns what waits as server-sent events (HTML standard, section 9.2): each item once in a connection, all that are
// not acknowledged again in the next one.
func (q *queues) events(w http.ResponseWriter, r *http.Request, c caller) error {
	chosen, err := q.selection(r, c)
	if err != nil {
		return err
	}

	wake, leave, err := q.enter(chosen.client)
	if err != nil {
		return err
	}
	defer leave()

	if chosen.limit == 0 {
		chosen.limit = contract.MaxLimit
	}

	ctx, stop := httpserver.WhileServing(r.Context())
	defer stop()
	out := q.openEvents(ctx, w, stop)
	defer out.Close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	sent := map[string]bool{}
	for q.feed(r, c, chosen, sent, out) {
		select {
		case <-wake:
		case <-look.C:
		case <-ctx.Done():
			if r.Context().Err() == nil { // the server stops: what is not acknowledged comes again, here or at another node
				out.Write(event("stopping", "", map[string]any{"reason": "server_stopping"}))
			}
			return nil
		}
	}

	return nil
}

// feed writes the items that the reader has not got, and forgets those that were acknowledged. The token is checked again:
// it may have been revoked since.
func (q *queues) feed(r *http.Request, c caller, chosen selection, sent map[string]bool, out *httpserver.EventWriter) bool {
	if again, err := q.access.verify(r); err != nil || again.owner != c.owner || again.allow(scopePending) != nil {
		return false
	}

	items, err := q.read(r.Context(), chosen)
	if err != nil {
		return false
	}

	waiting := make(map[string]bool, len(items))
	for _, item := range items {
		waiting[item.ID] = true
		if sent[item.ID] && chosen.lease == 0 {
			continue
		}
		if !out.Write(event("item", item.ID, item.Value())) {
			return false
		}
		sent[item.ID] = true
	}

	for id := range sent {
		if !waiting[id] {
			delete(sent, id)
		}
	}

	return true
}

// notifier wakes waiters on this node for the queue of a client. A notification may be spurious or missed: a waiter
// also looks by itself from time to time.
type notifier struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by client
}

// listen returns a channel that gets a value when the client's queue changes; leave ends it.
func (b *notifier) listen(client string) (woken <-chan struct{}, leave func()) {
	wake := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.waiting == nil {
		b.waiting = map[string]map[chan struct{}]bool{}
	}
	if b.waiting[client] == nil {
		b.waiting[client] = map[chan struct{}]bool{}
	}

	b.waiting[client][wake] = true
	return wake, func() { b.leave(client, wake) }
}

func (b *notifier) leave(client string, wake chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting[client], wake)
	if len(b.waiting[client]) == 0 {
		delete(b.waiting, client)
	}
}

// Wake tells that the queue of a client changed, on this node or another; an empty id stands for any client.
func (q *queues) Wake(client string) {
	b := &q.notifier
	b.mu.Lock()
	defer b.mu.Unlock()
	for waiting, woken := range b.waiting {
		if client != "" && client != waiting {
			continue
		}
		for wake := range woken {
			select {
			case wake <- struct{}{}:
			default: // it is awake already
			}
		}
	}
}

package bridge

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"inbox/agents/runtime/envelope"
)

// Defaults of NewMemory.
const (
	DefaultMaxItems   = 10_000
	DefaultMaxClients = 10_000
)

// Memory is a Store for tests and for programs that may forget when they end. When it is full it refuses; it never
// drops what a client has not acknowledged. It is safe for concurrent use.
type Memory struct {
	maxItems, maxClients int
	now                  func() time.Time

	mu      sync.Mutex
	clients map[string]Client
	items   map[string]*list.Element // by queue id
	queues  map[string]*list.List    // of *queued, by client id
}

type queued struct {
	item   Item
	leased time.Time // until
}

// NewMemory makes an empty store. maxItems bounds the items of each client, maxClients the clients and the queues; zero
// or less takes the default.
func NewMemory(maxItems, maxClients int) *Memory {
	if maxItems <= 0 {
		maxItems = DefaultMaxItems
	}
	if maxClients <= 0 {
		maxClients = DefaultMaxClients
	}
	return &Memory{
		maxItems: maxItems, maxClients: maxClients, now: time.Now,
		clients: map[string]Client{}, items: map[string]*list.Element{}, queues: map[string]*list.List{},
	}
}

// PutClient implements Store.
func (m *Memory) PutClient(_ context.Context, client Client) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.clients[client.ID]; !known && len(m.clients) >= m.maxClients {
		return ErrFull
	}
	client.Context = envelope.Clone(client.Context)
	m.clients[client.ID] = client
	return nil
}

// Client implements Store.
func (m *Memory) Client(_ context.Context, id string) (Client, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	client, known := m.clients[id]
	client.Context = envelope.Clone(client.Context)
	return client, known, nil
}

// Enqueue implements Store.
func (m *Memory) Enqueue(_ context.Context, item Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	item.Metadata = envelope.Clone(item.Metadata)
	if place := m.items[item.ID]; place != nil {
		kept := place.Value.(*queued)
		if kept.item.ClientID != item.ClientID {
			return ErrForeign
		}
		*kept = queued{item: item}
		return nil
	}
	queue := m.queues[item.ClientID]
	if queue == nil && len(m.queues) >= m.maxClients || queue != nil && queue.Len() >= m.maxItems {
		return ErrFull
	}
	if queue == nil {
		queue = list.New()
		m.queues[item.ClientID] = queue
	}
	m.items[item.ID] = queue.PushBack(&queued{item: item})
	return nil
}

// Pending implements Store.
func (m *Memory) Pending(_ context.Context, client string, query Query) ([]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(m.find(client, query, func(*queued) bool { return true })), nil
}

// Lease implements Store.
func (m *Memory) Lease(_ context.Context, client string, query Query, duration time.Duration) ([]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	found := m.find(client, query, func(one *queued) bool { return !now.Before(one.leased) })
	for _, one := range found {
		one.leased = now.Add(duration)
	}
	return copies(found), nil
}

func (m *Memory) find(client string, query Query, wanted func(*queued) bool) []*queued {
	queue := m.queues[client]
	if queue == nil {
		return nil
	}
	var found []*queued
	for place := queue.Front(); place != nil && len(found) < query.Limit; place = place.Next() {
		one := place.Value.(*queued)
		if wanted(one) && (len(query.Sessions) == 0 || slices.Contains(query.Sessions, one.item.SessionID)) {
			found = append(found, one)
		}
	}
	return found
}

func copies(found []*queued) []Item {
	items := make([]Item, len(found))
	for i, one := range found {
		items[i] = one.item
		items[i].Metadata = envelope.Clone(one.item.Metadata)
	}
	return items
}

// Attempted implements Store.
func (m *Memory) Attempted(_ context.Context, client, id string, status Status) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place := m.items[id]
	if place == nil || place.Value.(*queued).item.ClientID != client {
		return false, nil
	}
	place.Value.(*queued).item.Status = status
	return true, nil
}

// Ack implements Store.
func (m *Memory) Ack(_ context.Context, client string, ids []string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue, removed := m.queues[client], 0
	for _, id := range ids {
		place := m.items[id]
		if place == nil || place.Value.(*queued).item.ClientID != client {
			continue
		}
		queue.Remove(place)
		delete(m.items, id)
		removed++
	}
	if queue != nil && queue.Len() == 0 {
		delete(m.queues, client)
	}
	return removed, nil
}

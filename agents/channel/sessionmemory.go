package channel

import (
	"container/list"
	"context"
	"sync"
)

// DefaultMaxSessions is how many sessions NewMemorySessions keeps.
const DefaultMaxSessions = 100_000

// MemorySessions is a Sessions for tests and for programs that may forget: when it is full, the session that nobody
// asked for the longest is gone, and its conversation begins anew. It is safe for concurrent use.
type MemorySessions struct {
	limit int

	mu    sync.Mutex
	rows  map[any]*list.Element // by SessionKey, or by text for imported ones
	order *list.List            // of sessionRow, the longest unused first
}

type sessionRow struct {
	key     any
	session string
}

// NewMemorySessions makes an empty map; a limit of zero or less is DefaultMaxSessions.
func NewMemorySessions(limit int) *MemorySessions {
	if limit <= 0 {
		limit = DefaultMaxSessions
	}
	return &MemorySessions{limit: limit, rows: map[any]*list.Element{}, order: list.New()}
}

// Session implements Sessions.
func (m *MemorySessions) Session(_ context.Context, key SessionKey) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range []any{key, key.Imported()} {
		if place := m.rows[known]; place != nil {
			m.order.MoveToBack(place)
			return place.Value.(sessionRow).session, nil
		}
	}
	return "", nil
}

// SetSession implements Sessions.
func (m *MemorySessions) SetSession(ctx context.Context, key SessionKey, session string) error {
	if session == "" {
		return m.DeleteSession(ctx, key)
	}
	m.keep(key, session)
	return nil
}

// ImportSession implements Sessions.
func (m *MemorySessions) ImportSession(_ context.Context, imported, session string) error {
	if session != "" {
		m.keep(imported, session)
	}
	return nil
}

func (m *MemorySessions) keep(key any, session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
	if len(m.rows) >= m.limit {
		m.remove(m.order.Front().Value.(sessionRow).key)
	}
	m.rows[key] = m.order.PushBack(sessionRow{key, session})
}

// DeleteSession implements Sessions.
func (m *MemorySessions) DeleteSession(_ context.Context, key SessionKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
	m.remove(key.Imported())
	return nil
}

func (m *MemorySessions) remove(key any) {
	if place := m.rows[key]; place != nil {
		m.order.Remove(place)
		delete(m.rows, key)
	}
}

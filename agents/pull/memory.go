package pull

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/internal/fault"
)

// Bounds of a Memory.
const (
	maxMemoryDocuments = 100_000
	maxMemoryBytes     = 256 << 20
	sweepEvery         = time.Minute
)

// Memory is the Mailbox of one process. Over 100,000 documents or 256 MiB it refuses new ones with fault.Unavailable.
type Memory struct {
	mu     sync.Mutex
	spaces map[string][]document // in order of their keys
	count  int
	bytes  int
	swept  time.Time
}

type document struct {
	key     string
	value   []byte
	expires time.Time
}

func (d document) live(now time.Time) bool { return d.expires.IsZero() || now.Before(d.expires) }

// NewMemory makes an empty mailbox.
func NewMemory() *Memory { return &Memory{spaces: map[string][]document{}, swept: time.Now()} }

// Get returns a document.
func (m *Memory) Get(_ context.Context, namespace, key string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place, found := m.place(namespace, key)
	if !found || !m.spaces[namespace][place].live(time.Now()) {
		return nil, false, nil
	}
	return slices.Clone(m.spaces[namespace][place].value), true, nil
}

// Put writes a document over what is there. A zero expires means never.
func (m *Memory) Put(_ context.Context, namespace, key string, value []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(namespace, document{key: key, value: slices.Clone(value), expires: expires})
}

// PutIfAbsent writes a document unless a live one is there, and returns the one that is there afterwards.
func (m *Memory) PutIfAbsent(
	_ context.Context, namespace, key string, value []byte, expires time.Time,
) (current []byte, inserted bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place, found := m.place(namespace, key); found && m.spaces[namespace][place].live(time.Now()) {
		return slices.Clone(m.spaces[namespace][place].value), false, nil
	}
	err = m.put(namespace, document{key: key, value: slices.Clone(value), expires: expires})
	return value, err == nil, err
}

// Delete removes a document; it is no error when there is none.
func (m *Memory) Delete(_ context.Context, namespace, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place, found := m.place(namespace, key); found {
		m.remove(namespace, place)
	}
	return nil
}

// List returns the live documents after a key, in order.
func (m *Memory) List(_ context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place, found := m.place(namespace, after)
	if found {
		place++
	}

	now := time.Now()
	for _, one := range m.spaces[namespace][place:] {
		if len(keys) == limit {
			break
		}
		if one.live(now) {
			keys, values = append(keys, one.key), append(values, slices.Clone(one.value))
		}
	}

	return keys, values, nil
}

func (m *Memory) place(namespace, key string) (int, bool) {
	return slices.BinarySearchFunc(m.spaces[namespace], key, func(d document, key string) int { return strings.Compare(d.key, key) })
}

func (m *Memory) put(namespace string, added document) error {
	m.sweep()
	place, found := m.place(namespace, added.key)
	if found {
		m.remove(namespace, place)
	}
	if m.count >= maxMemoryDocuments || m.bytes+len(added.value) > maxMemoryBytes {
		return fault.New(fault.Unavailable, "too many turns are waiting for programs that take them")
	}

	m.spaces[namespace] = slices.Insert(m.spaces[namespace], place, added)
	m.count++
	m.bytes += len(added.value)
	return nil
}

func (m *Memory) remove(namespace string, place int) {
	m.count--
	m.bytes -= len(m.spaces[namespace][place].value)
	if m.spaces[namespace] = slices.Delete(m.spaces[namespace], place, place+1); len(m.spaces[namespace]) == 0 {
		delete(m.spaces, namespace)
	}
}

// sweep forgets what has ended, once a minute.
func (m *Memory) sweep() {
	now := time.Now()
	if now.Sub(m.swept) < sweepEvery {
		return
	}

	m.swept = now
	for namespace, documents := range m.spaces {
		for place, one := range slices.Backward(documents) {
			if !one.live(now) {
				m.remove(namespace, place)
			}
		}
	}
}

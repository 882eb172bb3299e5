package channel

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// DefaultMaxMarks is how many marks NewMemoryMarks keeps.
const DefaultMaxMarks = 100_000

// MemoryMarks is a Marks for tests and for programs that may forget: when it is full, the mark that would have ended
// first is gone. It is safe for concurrent use.
type MemoryMarks struct {
	limit int
	now   func() time.Time

	mu    sync.Mutex
	marks map[MessageKey]*mark
	ends  markHeap
}

type mark struct {
	key   MessageKey
	ends  time.Time
	place int // in the heap
}

// NewMemoryMarks makes an empty store; a limit of zero or less is DefaultMaxMarks.
func NewMemoryMarks(limit int) *MemoryMarks {
	if limit <= 0 {
		limit = DefaultMaxMarks
	}
	return &MemoryMarks{limit: limit, now: time.Now, marks: map[MessageKey]*mark{}}
}

// Claim implements Marks.
func (m *MemoryMarks) Claim(_ context.Context, key MessageKey, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if m.marks[key] != nil {
		return false, nil
	}
	m.keep(key, ttl)
	return true, nil
}

// Mark implements Marks.
func (m *MemoryMarks) Mark(_ context.Context, key MessageKey, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.remove(key)
	m.keep(key, ttl)
	return nil
}

// Marked implements Marks.
func (m *MemoryMarks) Marked(_ context.Context, key MessageKey) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.marks[key] != nil, nil
}

// Unmark implements Marks.
func (m *MemoryMarks) Unmark(_ context.Context, key MessageKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
	return nil
}

func (m *MemoryMarks) keep(key MessageKey, ttl time.Duration) {
	if len(m.marks) >= m.limit {
		m.remove(m.ends[0].key)
	}
	kept := &mark{key: key, ends: m.now().Add(ttl)}
	m.marks[key] = kept
	heap.Push(&m.ends, kept)
}

func (m *MemoryMarks) remove(key MessageKey) {
	if kept := m.marks[key]; kept != nil {
		heap.Remove(&m.ends, kept.place)
		delete(m.marks, key)
	}
}

func (m *MemoryMarks) expire() {
	for now := m.now(); len(m.ends) > 0 && !now.Before(m.ends[0].ends); {
		m.remove(m.ends[0].key)
	}
}

// markHeap has the mark that ends first at its top.
type markHeap []*mark

func (h markHeap) Len() int           { return len(h) }
func (h markHeap) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }
func (h markHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *markHeap) Push(added any) {
	one := added.(*mark)
	one.place = len(*h)
	*h = append(*h, one)
}

func (h *markHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}

package request

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"inbox/agents/runtime/envelope"
)

// Defaults of MemoryOptions.
const (
	DefaultMaxRequests   = 10_000
	DefaultMaxRecordSize = 1 << 20
	DefaultRetain        = 24 * time.Hour
)

// MemoryOptions bound a Memory.
type MemoryOptions struct {
	MaxRequests   int           // records at once; zero = DefaultMaxRequests
	MaxRecordSize int           // bytes of a request or result as JSON; zero = DefaultMaxRecordSize
	Retain        time.Duration // how long a record stays after its last change; zero = DefaultRetain
}

// Memory is a Store for tests and for programs that may forget. Records are gone after Retain, and the record whose
// last change is the oldest makes room for a new one, terminal ones first. It is safe for concurrent use.
type Memory struct {
	options MemoryOptions

	mu       sync.Mutex
	records  map[string]*record
	pending  *list.List // of *record, by creation
	terminal *list.List // of *record, by transition
}

type record struct {
	request map[string]any
	created time.Time
	changed time.Time
	home    *list.List
	place   *list.Element
}

// NewMemory makes an empty store.
func NewMemory(options MemoryOptions) *Memory {
	if options.MaxRequests <= 0 {
		options.MaxRequests = DefaultMaxRequests
	}
	if options.MaxRecordSize <= 0 {
		options.MaxRecordSize = DefaultMaxRecordSize
	}
	if options.Retain <= 0 {
		options.Retain = DefaultRetain
	}
	return &Memory{options: options, records: map[string]*record{}, pending: list.New(), terminal: list.New()}
}

// Create implements Store. It refuses a request over MaxRecordSize with CodeRequest.
func (m *Memory) Create(_ context.Context, request map[string]any) error {
	kept, err := m.copy(request, CodeRequest)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetOld()
	requestID := envelope.Text(request["request_id"])
	if earlier := m.records[requestID]; earlier != nil {
		m.remove(earlier)
	}
	m.makeRoom()
	now := time.Now()
	created := &record{request: kept, created: now, changed: now}
	m.records[requestID] = created
	created.moveTo(m.pending)
	return nil
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, requestID string) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetOld()
	found := m.records[requestID]
	if found == nil {
		return nil, nil
	}
	return envelope.Clone(found.request), nil
}

// TransitionPending implements Store. It refuses a result over MaxRecordSize with CodeResult.
func (m *Memory) TransitionPending(_ context.Context, requestID, status string, result map[string]any) (bool, error) {
	kept, err := m.copy(result, CodeResult)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetOld()
	found := m.records[requestID]
	if found == nil || !Pending(found.request) {
		return false, nil
	}
	found.request["status"] = status
	if result != nil {
		found.request["result"] = kept
	}
	found.changed = time.Now()
	found.moveTo(m.terminal)
	return true, nil
}

// RecentPending implements Store.
func (m *Memory) RecentPending(_ context.Context, query Query) ([]map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetOld()
	found := []map[string]any{}
	for place := m.pending.Front(); place != nil; place = place.Next() {
		one := place.Value.(*record)
		if query.Limit > 0 && len(found) == query.Limit {
			break
		}
		if query.matches(one.request, one.created) {
			found = append(found, envelope.Clone(one.request))
		}
	}
	return found, nil
}

func (q Query) matches(request map[string]any, created time.Time) bool {
	switch {
	case q.RunID != "" && envelope.Text(request["run_id"]) != q.RunID,
		q.ToolName != "" && envelope.Text(request["tool_name"]) != q.ToolName,
		!q.Before.IsZero() && !created.Before(q.Before),
		!q.After.IsZero() && !created.After(q.After):
		return false
	case q.DueBy.IsZero():
		return true
	}
	due, ok := TimeoutAt(request)
	return ok && !due.After(q.DueBy)
}

func (r *record) moveTo(home *list.List) {
	if r.home != nil {
		r.home.Remove(r.place)
	}
	r.home, r.place = home, home.PushBack(r)
}

func (m *Memory) remove(gone *record) {
	gone.home.Remove(gone.place)
	delete(m.records, envelope.Text(gone.request["request_id"]))
}

func (m *Memory) forgetOld() {
	limit := time.Now().Add(-m.options.Retain)
	for _, home := range []*list.List{m.terminal, m.pending} {
		for oldest := home.Front(); oldest != nil && oldest.Value.(*record).changed.Before(limit); oldest = home.Front() {
			m.remove(oldest.Value.(*record))
		}
	}
}

func (m *Memory) makeRoom() {
	for len(m.records) >= m.options.MaxRequests {
		oldest := m.terminal.Front()
		if oldest == nil {
			oldest = m.pending.Front()
		}
		m.remove(oldest.Value.(*record))
	}
}

// copy makes the record independent of what the caller does with its value, and checks its size on the way.
func (m *Memory) copy(value map[string]any, code string) (map[string]any, error) {
	if value == nil {
		return nil, nil
	}
	encoded, err := envelope.Encode(value)
	if err != nil {
		return nil, invalid(code, "is not JSON: "+err.Error())
	}
	if len(encoded) > m.options.MaxRecordSize {
		return nil, invalid(code, fmt.Sprintf("has %d bytes as JSON; the limit is %d", len(encoded), m.options.MaxRecordSize))
	}
	return envelope.Clone(value), nil
}

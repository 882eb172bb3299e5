package emailtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// State keeps documents in order of their keys.
type State struct {
	mu   sync.Mutex
	Docs map[string][]byte
}

// NewState returns an empty state.
func NewState() *State { return &State{Docs: map[string][]byte{}} }

// Get returns a document.
func (s *State) Get(_ context.Context, namespace, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.Docs[namespace+"\x00"+key]
	return value, ok, nil
}

// Put stores a document.
func (s *State) Put(_ context.Context, namespace, key string, value []byte, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Docs[namespace+"\x00"+key] = value
	return nil
}

// PutIfAbsent stores a document where there is none and returns the one that is there then.
func (s *State) PutIfAbsent(_ context.Context, namespace, key string, value []byte, _ time.Time) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, ok := s.Docs[namespace+"\x00"+key]; ok {
		return current, false, nil
	}
	s.Docs[namespace+"\x00"+key] = value
	return value, true, nil
}

// Delete removes a document.
func (s *State) Delete(_ context.Context, namespace, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.Docs, namespace+"\x00"+key)
	return nil
}

// List returns documents in the order of their keys.
func (s *State) List(_ context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.Docs)) {
		key, ok := strings.CutPrefix(name, namespace+"\x00")
		if ok && key > after && len(keys) < limit {
			keys, values = append(keys, key), append(values, s.Docs[name])
		}
	}
	return keys, values, nil
}

// Count returns how many documents a namespace has.
func (s *State) Count(_ context.Context, namespace string) (int64, error) {
	keys, _, err := s.List(context.Background(), namespace, "", 1<<30)
	return int64(len(keys)), err
}

package pipeline

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"inbox/exchange"
)

// Bounds of what one run may write about itself: agents of embedding programs write it, too.
const (
	maxSteps     = 500
	maxStepBytes = 8 << 10
)

// steps are rows of a run that wait for its next write.
type steps struct {
	mu    sync.Mutex
	rows  []exchange.Event
	count int // of the run
}

// note implements agents.Turn.Steps. What is over the bounds, or no JSON, is left out: a timeline must not end a run.
func (s *steps) note(kind string, body any) {
	encoded, err := json.Marshal(body)
	if err != nil || len(encoded) > maxStepBytes {
		encoded = json.RawMessage(`{"left_out":true}`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; s.count <= maxSteps {
		s.rows = append(s.rows, exchange.Event{Kind: kind, Body: encoded, At: time.Now()})
	}
}

func (s *steps) noted() []exchange.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows)
}

func (s *steps) wrote(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = s.rows[count:]
}

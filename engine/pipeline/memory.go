package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/internal/fault"
)

// Documents keeps the notes of agents between the runs of a turn.
type Documents interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

// DocumentTx writes them.
type DocumentTx interface {
	// PutDocument writes a document, over an older one if there is one.
	PutDocument(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

const (
	memoryNamespace = "agents.memory" // turn id → the agent's own note
	memoryLife      = 7 * 24 * time.Hour
)

// memory is agents.Memory of one turn.
type memory struct {
	documents Documents
	record    *runRecord
	turnID    string
}

// memoryOf returns the note of a turn; nil when the server keeps none.
func (s *Service) memoryOf(turnID string, record *runRecord) agents.Memory {
	if s.options.Documents == nil {
		return nil
	}
	return memory{s.options.Documents, record, turnID}
}

// Load returns the note of an earlier run.
func (m memory) Load(ctx context.Context) ([]byte, error) {
	note, _, err := m.documents.Get(ctx, memoryNamespace, m.turnID)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the agent's note cannot be read now", err)
	}
	return note, nil
}

// Save replaces the note. What the agent did until then is written with it, so that both survive or neither.
func (m memory) Save(ctx context.Context, note []byte) error {
	if len(note) > agents.MaxMemory {
		return fault.New(fault.TooLarge, "the agent's note is over 4 MiB")
	}
	err := m.record.flush(ctx, func(tx Tx) error {
		return tx.PutDocument(ctx, memoryNamespace, m.turnID, note, time.Now().Add(memoryLife))
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the agent's note cannot be kept now", err)
	}
	return nil
}

package delivery

import (
	"context"
	"sync"

	"inbox/exchange"
	"inbox/internal/queue"
)

// maxFresh bounds the deliveries that are remembered between their row and their first attempt.
const maxFresh = 2048

// fresh remembers deliveries that this process is storing, so that the first attempt needs no query. What is missing
// here is read.
type fresh struct {
	mu   sync.Mutex
	kept map[string]kept
}

type kept struct {
	record Record
	reply  exchange.Reply
}

func newFresh() *fresh { return &fresh{kept: map[string]kept{}} }

// Expect is told of deliveries whose rows are about to be committed.
func (s *Service) Expect(records []Record, reply exchange.Reply) {
	s.fresh.mu.Lock()
	defer s.fresh.mu.Unlock()
	if len(s.fresh.kept)+len(records) > maxFresh {
		clear(s.fresh.kept) // rows that never were committed would stay for ever
	}
	for _, record := range records {
		s.fresh.kept[record.ID] = kept{record, reply}
	}
}

// take returns a remembered delivery, once.
func (f *fresh) take(id string) (kept, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry, ok := f.kept[id]
	delete(f.kept, id)
	return entry, ok
}

// load returns the delivery of a job. Only a first attempt may trust what is remembered: the operator may have
// cancelled a delivery since, which the conditional update at the end would notice too late.
func (s *Service) load(ctx context.Context, job queue.Job) (Record, exchange.Reply, error) {
	if entry, ok := s.fresh.take(job.Payload); ok && job.Attempt == 1 {
		return entry.record, entry.reply, nil
	}
	return s.options.Store.Delivery(ctx, job.Payload)
}

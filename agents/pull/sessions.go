package pull

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"inbox/internal/fault"
	"inbox/normalized"
)

// Bounds of the runs of which this node remembers the deltas; a forgotten one is read again.
const (
	maxSessions  = 1024
	sessionsLife = 10 * time.Minute
)

// session is what a run has brought so far, so that a delta that does not fit is refused while the program listens.
type session struct {
	busy sync.Mutex // one request with deltas at a time
	last string     // key of the last batch
	next int        // number of the next delta, from 0
	fold *normalized.Fold
	sent time.Time // when the last batch was written
	beat time.Time // when the last sign of life without deltas was written

	used time.Time // guarded by sessions
}

type sessions struct {
	mu    sync.Mutex
	byRun map[string]*session
}

// take returns the session of a run for one request; release lets the next one in, anew after a failure.
func (s *sessions) take(run string) (taken *session, release func(failed bool), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRun == nil {
		s.byRun = map[string]*session{}
	}
	taken = s.byRun[run]
	if taken == nil {
		s.makeRoom()
		taken = &session{}
		s.byRun[run] = taken
	}
	taken.used = time.Now()
	if !taken.busy.TryLock() {
		return nil, nil, &fault.Fault{
			Kind: fault.RateLimited, Public: "another request is bringing deltas of this turn: send them one after the other",
			RetryAfter: time.Second,
		}
	}
	return taken, func(failed bool) {
		taken.busy.Unlock()
		if failed {
			s.forget(run)
		}
	}, nil
}

// makeRoom forgets what is old, and when that is not enough any: a run that goes on is read again.
func (s *sessions) makeRoom() {
	for run, known := range s.byRun {
		if time.Since(known.used) > sessionsLife {
			delete(s.byRun, run)
		}
	}
	for run := range s.byRun {
		if len(s.byRun) < maxSessions {
			return
		}
		delete(s.byRun, run)
	}
}

func (s *sessions) forget(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byRun, run)
}

// catchUp reads what other requests, perhaps on other nodes, have brought.
func (s *Service) catchUp(ctx context.Context, run string, known *session) (status, error) {
	if known.fold == nil {
		known.fold = normalized.NewFold(s.options.Limits)
	}
	found, err := s.rows.deltas(ctx, run, known.last, func(key string, batch []byte) error {
		var deltas []json.RawMessage
		if err := decode(batch, &deltas); err != nil {
			return err
		}
		for _, encoded := range deltas {
			delta, err := normalized.DecodeDelta(encoded, s.options.Limits)
			if err != nil {
				return err
			}
			if err := known.fold.Add(delta); err != nil {
				return err
			}
			known.next++
		}
		known.last = key
		return nil
	})
	return found, err
}

// grown is the answer that the deltas of a run make.
func (s *Service) grown(ctx context.Context, lease holding) (normalized.Response, error) {
	known, release, err := s.sessions.take(lease.run)
	if err != nil {
		return normalized.Response{}, err
	}
	_, err = s.catchUp(ctx, lease.run, known)
	if err != nil {
		release(true)
		return normalized.Response{}, unavailable("reading the deltas", err)
	}
	response, err := known.fold.Response()
	release(false)
	return response, err
}

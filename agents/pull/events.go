package pull

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

const (
	maxOpen   = 16               // turns that one stream may have given out and not yet seen the end of
	keepAlive = 15 * time.Second // between comments
)

// handEvents returns turns as server-sent events (WHATWG HTML, section 9.2), the next one when fewer than max are open.
func (s *Service) handEvents(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	most, err := openLimit(r.URL.Query().Get("max"))
	if err != nil {
		return err
	}

	has, err := readLabels(r.URL.Query().Get("labels"))
	if err != nil {
		return err
	}

	httpserver.SetEventHeaders(w.Header())
	if r.Method == http.MethodHead {
		return nil
	}

	leave, err := agent.enter()
	if err != nil {
		return err
	}
	defer leave()

	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	out := httpserver.OpenEvents(ctx, w, httpserver.EventOptions{KeepAlive: keepAlive, WriteTimeout: writeTime}, stop)
	defer out.Close()

	stream := &turnStream{service: s, agent: agent, has: has, out: out, r: r.WithContext(ctx), most: most, open: map[string]bool{}}
	stream.run()
	return nil
}

func openLimit(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	most, err := strconv.Atoi(text)
	if err != nil || most < 1 || most > maxOpen {
		return 0, fault.InField("max", "must be a number from 1 to 16")
	}
	return most, nil
}

type turnStream struct {
	service *Service
	agent   *Agent
	has     labels
	out     *httpserver.EventWriter
	r       *http.Request
	most    int
	open    map[string]bool // runs that this stream gave out
}

// run ends when the program, its token or the server goes away.
func (t *turnStream) run() {
	defer t.sayStopping()
	for {
		ctx, cancel := context.WithTimeout(t.r.Context(), keepAlive)
		goOn := t.next(ctx)
		cancel()
		if !goOn {
			return
		}
	}
}

// next sends one turn, or nothing when there is none until ctx ends; false = the stream is over.
func (t *turnStream) next(ctx context.Context) bool {
	if !t.room(ctx) {
		return t.alive()
	}

	taken, err := t.service.await(ctx, t.r, t.agent, t.has)
	switch {
	case err != nil: // the answer has begun: the program hears the reason when it connects again
		return false
	case taken == nil:
		return t.alive()
	}

	t.open[taken.run] = true
	return t.service.hand(t.r, t.agent, taken, t.out.Write(httpserver.Event{Name: "turn", ID: taken.run, Data: taken.document}))
}

// room waits until fewer turns are open than the program wants; false = not before ctx ends.
func (t *turnStream) room(ctx context.Context) bool {
	wake, leave := t.service.notifier.listen(endsTopic(t.agent.name))
	defer leave()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if t.forgetEnded(ctx); len(t.open) < t.most {
			return true
		}
		select {
		case <-wake:
		case <-ticker.C:
		case <-httpserver.Stopping(ctx):
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (t *turnStream) forgetEnded(ctx context.Context) {
	for run := range t.open {
		found, err := t.service.rows.status(ctx, run)
		if err == nil && (found.end != nil || found.claim == nil) {
			delete(t.open, run)
		}
	}
}

func (t *turnStream) alive() bool {
	select {
	case <-httpserver.Stopping(t.r.Context()):
		return false
	default:
		return t.r.Context().Err() == nil
	}
}

func (t *turnStream) sayStopping() {
	select {
	case <-httpserver.Stopping(t.r.Context()):
		t.out.Write(httpserver.StoppingEvent()) // turns that the program holds stay its own
	default:
	}
}

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
	size int        // bytes of the deltas
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
			known.size += len(encoded)
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

package pull

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	defaultTake = 30 * time.Second
	longestTake = time.Minute
	writeTime   = 30 * time.Second // for one turn to reach a program
)

// Routes returns the HTTP face of all pull agents.
func (s *Service) Routes() []httpserver.Route {
	work := "/v1/pull/{agent}/{turn}/"
	return []httpserver.Route{
		{Method: http.MethodPost, Pattern: "/v1/pull/{agent}/take", Handler: s.authorized(s.handTake)},
		{Method: http.MethodGet, Pattern: "/v1/pull/{agent}/events", Handler: s.authorized(s.handEvents)},
		{Method: http.MethodPost, Pattern: work + "heartbeat", Handler: s.authorized(s.handHeartbeat)},
		{Method: http.MethodPost, Pattern: work + "deltas", Handler: s.authorized(s.handDeltas)},
		{Method: http.MethodPost, Pattern: work + "answer", Handler: s.authorized(s.handAnswer)},
		{Method: http.MethodPost, Pattern: work + "fail", Handler: s.authorized(s.handFail)},
	}
}

// handTake is the long poll: one turn, or 204 when there is none in time.
func (s *Service) handTake(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	wait, err := duration(r.URL.Query().Get("wait"), defaultTake)
	if err != nil {
		return err
	}
	leave, err := agent.enter()
	if err != nil {
		return err
	}
	defer leave()
	limited, cancel := context.WithTimeout(r.Context(), min(wait, longestTake))
	defer cancel()
	taken, err := s.await(limited, r, agent)
	if err != nil {
		return err
	}
	if taken == nil {
		takes.WithLabelValues("empty").Inc()
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(taken.document)))
	s.hand(w, r, agent, taken, taken.document)
	return nil
}

// hand writes a turn to its program and takes it back when the connection is broken; false = it is.
func (s *Service) hand(w http.ResponseWriter, r *http.Request, agent *Agent, taken *turn, content []byte) bool {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err := send(w, content); err != nil {
		s.giveBack(context.WithoutCancel(r.Context()), agent, taken.run, time.Now().Add(keepFor))
		return false
	}
	takes.WithLabelValues("taken").Inc()
	return true
}

// send writes content and makes sure that it left.
func send(w http.ResponseWriter, content []byte) error {
	connection := w
	if wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		connection = wrapped.Unwrap() // the wrapper's Flush keeps the error to itself
	}
	controller := http.NewResponseController(connection)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has no connection
	defer func() { _ = controller.SetWriteDeadline(time.Time{}) }()
	if _, err := w.Write(content); err != nil {
		return err
	}
	return controller.Flush()
}

// await returns the next turn; nil when ctx or the server ends before.
func (s *Service) await(ctx context.Context, r *http.Request, agent *Agent) (taken *turn, err error) {
	bell, leave := s.bells.listen(offersTopic(agent.name))
	defer leave()
	done := agent.wait()
	defer func() { done(taken != nil) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for look := true; ; {
		if look {
			taken, err = s.takeFor(ctx, r, agent)
			if taken != nil || err != nil {
				return taken, err
			}
		}
		select {
		case <-bell:
			look = true
		case <-ticker.C:
			look = agent.due()
		case <-httpserver.Stopping(ctx):
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// takeFor checks once more who asks: the token may have been revoked since, and the program may be gone.
func (s *Service) takeFor(ctx context.Context, r *http.Request, agent *Agent) (*turn, error) {
	if _, err := s.verify(r); err != nil {
		return nil, err
	}
	select {
	case <-r.Context().Done():
		return nil, nil
	default:
	}
	return agent.take(context.WithoutCancel(ctx))
}

// duration reads "30s" or "30"; empty = otherwise.
func duration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}
	return length, nil
}

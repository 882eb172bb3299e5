package clienttool

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	longestWait = time.Minute
	keepAlive   = 15 * time.Second // between comments of a stream
	writeTime   = 30 * time.Second // for one piece to reach a program
	pageLength  = 100              // requests in one answer when the program names no limit
	maxPage     = 500
)

// handList returns the pending requests, oldest first: at once, or with ?wait=30s as soon as there are some.
func (s *Service) handList(w http.ResponseWriter, r *http.Request, c caller) error {
	query, wait, err := readQuery(r)
	if err != nil {
		return err
	}

	found, err := s.await(r, c, query, wait)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"requests": found})
	return nil
}

// readQuery reads run_id, tool_name, before, after and limit (agent runtime contract, section 5), and wait.
func readQuery(r *http.Request) (request.Query, time.Duration, error) {
	values := r.URL.Query()
	raw := map[string]any{}
	for _, name := range []string{"run_id", "tool_name", "before", "after"} {
		raw[name] = values.Get(name)
	}

	raw["limit"] = json.Number(values.Get("limit"))
	query, err := request.ReadQuery(raw)
	if err != nil {
		return query, 0, err
	}

	if query.Limit == 0 {
		query.Limit = pageLength
	}

	query.Limit = min(query.Limit, maxPage)
	wait, err := duration(values.Get("wait"))
	return query, min(wait, longestWait), err
}

// duration reads "30s" or "30"; empty = 0.
func duration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
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

// await lists until there is something, the time or the request is over, or the server stops.
func (s *Service) await(r *http.Request, c caller, query request.Query, wait time.Duration) ([]map[string]any, error) {
	if wait == 0 {
		return s.pending(r.Context(), c, query)
	}

	bell, leave, err := c.agent.listen()
	if err != nil {
		return nil, err
	}
	defer leave()

	limited, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		found, err := s.pending(limited, c, query)
		if limited.Err() != nil {
			return []map[string]any{}, nil
		}
		if err != nil || len(found) > 0 {
			return found, err
		}

		select {
		case <-bell:
		case <-ticker.C:
		case <-httpserver.Stopping(limited):
			return []map[string]any{}, nil
		case <-limited.Done():
			return []map[string]any{}, nil
		}

		if _, err := s.verify(r); err != nil { // the token may have been revoked since
			return nil, err
		}
	}
}

// pending lists records as they are stored, with what only the server knows of them.
func (s *Service) pending(ctx context.Context, c caller, query request.Query) ([]map[string]any, error) {
	found, err := s.lifecycle(c).Store.RecentPending(ctx, query)
	if err != nil {
		return nil, unavailable("listing the requests", err)
	}
	return found, nil
}

// handEvents returns every pending request once, as a server-sent event (WHATWG HTML, section 9.2): "request" with the
// request, and "ended" when one of them is not pending any more, by any caller.
func (s *Service) handEvents(w http.ResponseWriter, r *http.Request, c caller) error {
	query, _, err := readQuery(r)
	if err != nil {
		return err
	}

	query.Limit = maxPage
	httpserver.SetEventHeaders(w.Header())
	if r.Method == http.MethodHead {
		return nil
	}

	bell, leave, err := c.agent.listen()
	if err != nil {
		return err
	}
	defer leave()

	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	r = r.WithContext(ctx)
	out := httpserver.OpenEvents(ctx, w, httpserver.EventOptions{KeepAlive: keepAlive, WriteTimeout: writeTime}, stop)
	defer out.Close()

	stream := &stream{service: s, out: out, r: r, caller: c, query: query, open: map[string]bool{}}
	stream.run(bell)
	return nil
}

type stream struct {
	service *Service
	out     *httpserver.EventWriter
	r       *http.Request
	caller  caller
	query   request.Query
	open    map[string]bool // requests that the program was told of and that were pending since
}

// run ends when the program, its token or the server goes away.
func (t *stream) run(bell <-chan struct{}) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	for t.look() {
		select {
		case <-bell:
		case <-ticker.C:
		case <-httpserver.Stopping(t.r.Context()): // the program connects again, here or at another node
			t.out.Write(httpserver.StoppingEvent())
			return
		case <-t.r.Context().Done():
			return
		}

		if _, err := t.service.verify(t.r); fault.Is(err, fault.Unauthenticated) {
			return
		}
	}
}

// look tells what is new; false = no reader listens.
func (t *stream) look() bool {
	found, err := t.service.pending(t.r.Context(), t.caller, t.query)
	if err != nil {
		return t.r.Context().Err() == nil // the database may come back
	}

	now := make(map[string]bool, len(found))
	for _, one := range found {
		id := value.Text(one["request_id"])
		now[id] = true
		if t.open[id] {
			continue
		}
		if !t.event("request", id, one) {
			return false
		}
		t.open[id] = true
	}

	if len(found) == maxPage { // those that are not listed may be pending all the same
		return true
	}

	for id := range t.open {
		if now[id] {
			continue
		}
		delete(t.open, id)
		if !t.event("ended", id, map[string]any{"request_id": id}) {
			return false
		}
	}

	return true
}

func (t *stream) event(name, id string, data map[string]any) bool {
	return t.out.Write(httpserver.Event{Name: name, ID: id, Data: []byte(value.EncodeText(data))})
}

package clienttool

import (
	"bytes"
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
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // nginx would keep events back

	if r.Method == http.MethodHead {
		return nil
	}

	bell, leave, err := c.agent.listen()
	if err != nil {
		return err
	}
	defer leave()

	stream := &stream{service: s, w: w, r: r, caller: c, query: query, open: map[string]bool{}}
	stream.run(bell)
	return nil
}

type stream struct {
	service *Service
	w       http.ResponseWriter
	r       *http.Request
	caller  caller
	query   request.Query
	open    map[string]bool // requests that the program was told of and that were pending since
	spoke   time.Time
}

// run ends when the program, its token or the server goes away.
func (t *stream) run(bell <-chan struct{}) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	if !t.send([]byte(": waiting\n\n")) {
		return
	}

	for t.look() {
		select {
		case <-bell:
		case <-ticker.C:
		case <-httpserver.Stopping(t.r.Context()): // the program connects again, here or at another node
			t.send([]byte("event: stopping\nretry: 1000\ndata: {\"reason\":\"server_stopping\"}\n\n"))
			return
		case <-t.r.Context().Done():
			return
		}

		if _, err := t.service.verify(t.r); fault.Is(err, fault.Unauthenticated) {
			return
		}
		if time.Since(t.spoke) >= keepAlive && !t.send([]byte(": waiting\n\n")) {
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
	var event bytes.Buffer
	event.WriteString("event: " + name + "\nid: " + id + "\ndata: " + value.EncodeText(data) + "\n\n")
	return t.send(event.Bytes())
}

// send writes content and makes sure that it left.
func (t *stream) send(content []byte) bool {
	connection := t.w
	if wrapped, ok := t.w.(interface{ Unwrap() http.ResponseWriter }); ok {
		connection = wrapped.Unwrap() // the wrapper's Flush keeps the error to itself
	}

	controller := http.NewResponseController(connection)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has no connection
	defer func() { _ = controller.SetWriteDeadline(time.Time{}) }()

	if _, err := t.w.Write(content); err != nil {
		return false
	}

	t.spoke = time.Now()
	return controller.Flush() == nil
}

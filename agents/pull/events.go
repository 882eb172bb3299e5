package pull

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
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
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would keep events back
	if r.Method == http.MethodHead {
		return nil
	}
	leave, err := agent.enter()
	if err != nil {
		return err
	}
	defer leave()
	stream := &turnStream{service: s, agent: agent, w: w, r: r, most: most, open: map[string]bool{}}
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
	w       http.ResponseWriter
	r       *http.Request
	most    int
	open    map[string]bool // runs that this stream gave out
}

// stoppingEvent is the last one when the server stops: the program connects again, here or at another node. Turns that it
// holds stay its own.
const stoppingEvent = "event: stopping\nretry: 1000\ndata: {\"reason\":\"server_stopping\"}\n\n"

// run ends when the program, its token or the server goes away.
func (t *turnStream) run() {
	if !t.comment() {
		return
	}
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

// next returns out one turn, or a comment when there is none until ctx ends; false = the stream is over.
func (t *turnStream) next(ctx context.Context) bool {
	if !t.room(ctx) {
		return t.alive() && t.comment()
	}
	taken, err := t.service.await(ctx, t.r, t.agent)
	switch {
	case err != nil: // the answer has begun: the program hears the reason when it connects again
		return false
	case taken == nil:
		return t.alive() && t.comment()
	}
	t.open[taken.run] = true
	var event bytes.Buffer
	event.WriteString("event: turn\nid: " + taken.run + "\ndata: ")
	event.Write(taken.document)
	event.WriteString("\n\n")
	return t.service.hand(t.w, t.r, t.agent, taken, event.Bytes())
}

// room waits until fewer turns are open than the program wants; false = not before ctx ends.
func (t *turnStream) room(ctx context.Context) bool {
	bell, leave := t.service.bells.listen(endsTopic(t.agent.name))
	defer leave()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if t.forgetEnded(ctx); len(t.open) < t.most {
			return true
		}
		select {
		case <-bell:
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
		_ = send(t.w, []byte(stoppingEvent)) // the program may be gone
	default:
	}
}

func (t *turnStream) comment() bool { return send(t.w, []byte(": waiting\n\n")) == nil }

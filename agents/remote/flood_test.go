package remote

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/internal/fault"
)

// flood is what a peer sends that does not stop by itself; it counts what was taken from it.
type flood struct{ taken atomic.Int64 }

const floodSize = 100 << 20

// write sends pieces until the reader leaves or all is sent, and reports whether all was.
func (f *flood) write(c *call, piece string) bool {
	for f.taken.Load() < floodSize {
		if c.r.Context().Err() != nil {
			return false
		}
		n, err := io.WriteString(c.w, piece)
		f.taken.Add(int64(n))
		if err != nil {
			return false
		}
	}
	return true
}

// TestPeerThatSendsTooMuch: of 100 MiB little more is read than an answer may have, wherever they come, and the sender is told that there
// was more, or that nothing can be shown.
func TestPeerThatSendsTooMuch(t *testing.T) {
	piece := strings.Repeat("x", 1<<20)
	tests := map[string]func(f *flood, c *call){
		"an answer": func(f *flood, c *call) {
			fmt.Fprintf(c.w, `{"jsonrpc":"2.0","id":%q,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"`, c.ID)
			f.write(c, piece)
		},
		"spaces before an answer": func(f *flood, c *call) { f.write(c, strings.Repeat(" ", 1<<20)) },
		"an error": func(f *flood, c *call) {
			c.w.WriteHeader(http.StatusBadRequest)
			f.write(c, piece)
		},
		"events": func(f *flood, c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			f.write(c, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"result\":%s}\n\n", c.ID, chunk(piece, true)))
		},
		"small events": func(f *flood, c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			f.write(c, strings.Repeat(fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"result\":%s}\n\n", c.ID, chunk("x", true)), 100))
		},
		"one event in many lines": func(f *flood, c *call) {
			c.w.Header().Set("Content-Type", "text/event-stream")
			f.write(c, strings.Repeat("data: {\n", 10_000))
		},
		"comments": func(f *flood, c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			f.write(c, strings.Repeat(": x\n\n", 10_000))
		},
		"statuses": func(f *flood, c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			working := strings.Replace(completedUpdate, "COMPLETED", "WORKING", 1)
			f.write(c, strings.Repeat(fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"result\":%s}\n\n", c.ID, working), 1000))
		},
	}
	for name, send := range tests {
		t.Run(name, func(t *testing.T) {
			f := &flood{}
			server := startScripted(t, true, func(c *call) {
				switch c.Method {
				case "CancelTask":
					c.result(taskJSON("CANCELED", ""))
				case "GetTask":
					c.fails(http.StatusOK, -32001, "gone")
				default:
					send(f, c)
				}
			})
			out, err := handle(t.Context(), t, newAgent(t, server.URL, func(o *Options) { o.TimeLimit = 20 * time.Second }), turnOf("1", "x"))
			says := "(The answer is too large to be shown.)"
			if name == "events" || name == "small events" {
				says = "he rest of the answer "
			}
			if said := textOf(out.response); (err == nil) == (name == "an error") || err == nil && !strings.Contains(said, says) {
				t.Errorf("%v; the answer ends with %q", err, said[max(0, len(said)-100):])
			}
			if taken := f.taken.Load(); taken > 64<<20 {
				t.Errorf("%d MiB were taken", taken>>20)
			}
			if public := fault.Of(err).Public; err != nil && (public == "" || len(public) > 1000) {
				t.Errorf("the sender is told %.100q", public)
			}
		})
	}
}

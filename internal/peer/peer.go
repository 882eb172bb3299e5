// Package peer is the outside world in small: a Mastodon-like server, a mail sender and sink with its own DNS, and
// an A2A client. Each asks an agent one question over its network and proves by its own means that the answer came
// from the agent. The demo command and tests use them; they share no protocol code with the adapters, so that a
// mistake there does not hide itself. They are not meant to serve people: they listen on loopback and keep
// everything in memory.
package peer

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Conversation is one question with its verified answer.
type Conversation struct {
	Network   string        // the network's name for people
	From, To  string        // addresses of the peer and of the agent
	MessageID string        // the question's own id: activity IRI, Message-ID without angle brackets, A2A messageId
	Question  string        // text as sent
	Answer    string        // text as received, markup and the leading mention removed
	Evidence  []string      // what was checked about the answer, one sentence each
	Took      time.Duration // from the start of sending to the verified answer
}

// Limits that every peer keeps towards the server under test.
const (
	maxDocumentBytes = 1 << 20
	requestTimeout   = 10 * time.Second
	stopGrace        = 500 * time.Millisecond
	maxAnswers       = 4 // to one question: demands, and the answer after them
)

// newHTTPClient returns a client that follows no redirects and takes no proxy from the environment.
func newHTTPClient() *http.Client {
	return &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 4},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			// Mastodon follows the redirects of WebFinger, by which a domain leads to another host.
			if via[0].URL.Path == "/.well-known/webfinger" && len(via) <= 3 {
				return nil
			}
			return http.ErrUseLastResponse
		},
	}
}

// readBody reads a response to its end and closes it.
func readBody(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentBytes+1))
	if err == nil && len(body) > maxDocumentBytes {
		err = fmt.Errorf("body is over %d bytes", maxDocumentBytes)
	}
	return body, err
}

// listen opens a TCP port on the address, 127.0.0.1:0 when it is empty.
func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", address)
}

// stopServer lets requests under way come to their end for a moment, then cuts them off.
func stopServer(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return server.Close()
	}
	return nil
}

// newID returns an unguessable identifier.
func newID() string { return rand.Text() }

// answer is what arrived for a waiting question.
type answer struct {
	id       string // of the message itself
	from     string // the proven author: actor IRI, user@domain
	others   string // to whom else it is addressed; empty = to us alone
	text     string
	evidence []string
	err      error // it arrived and does not hold
}

// waiting brings answers to the questions that they reply to, and remembers why other arrivals were refused.
type waiting struct {
	mu      sync.Mutex
	byID    map[string]chan answer
	refused error // the newest refusal, told when no answer comes
}

func newWaiting() *waiting { return &waiting{byID: make(map[string]chan answer)} }

// expect registers a question before it is sent. forget must be called when no one waits any more.
func (w *waiting) expect(id string) (arrival <-chan answer, forget func()) {
	arrived := make(chan answer, maxAnswers)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[id] = arrived
	return arrived, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byID, id)
	}
}

// deliver hands the answer to the caller that waits for it; false = no caller asked this question.
func (w *waiting) deliver(id string, got answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrived, asked := w.byID[id]
	if asked {
		select {
		case arrived <- got:
		default: // no one reads so many answers to one question
		}
	}
	return asked
}

func (w *waiting) refuse(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = reason
}

// await waits for the answer of the one who was asked. When ctx ends first, the error tells what was refused meanwhile.
func (w *waiting) await(ctx context.Context, asked string, arrival <-chan answer) (answer, error) {
	select {
	case got := <-arrival:
		if got.err == nil && !strings.EqualFold(got.from, asked) {
			got.err = fmt.Errorf("%s was asked, %s answered", asked, got.from)
		}
		return got, got.err
	case <-ctx.Done():
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.refused != nil {
		return answer{}, fmt.Errorf("no answer that verifies: %w; last refusal: %w", context.Cause(ctx), w.refused)
	}

	return answer{}, fmt.Errorf("no answer came: %w", context.Cause(ctx))
}

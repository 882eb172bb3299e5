package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

const (
	cardLimit    = 20 * time.Second // of reading the card, with a token for it
	cardLife     = 10 * time.Minute
	cardStale    = time.Hour // how long an old card serves when no new one can be had
	maxCardBytes = 512 << 10
)

// peer is the other agent as its card describes it, with what was learnt since.
type peer struct {
	endpoint
	card      card
	streaming bool
	client    *safehttp.Client
	read      time.Time
}

// peers remembers the card and the clients of the addresses that cards led to.
type peers struct {
	turn chan struct{} // held by the one who reads the card

	mu      sync.Mutex
	known   *peer
	clients map[string]*safehttp.Client
}

func newPeers() peers {
	return peers{turn: make(chan struct{}, 1), clients: map[string]*safehttp.Client{}}
}

func (p *peers) get() *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

func (p *peers) put(found *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = found
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range p.clients {
		client.Close()
	}
}

// resolve returns the agent's endpoint, from a card that is at most cardLife old.
func (a *Agent) resolve(ctx context.Context) (*peer, error) {
	if known := a.peers.get(); known != nil && time.Since(known.read) < cardLife {
		return known, nil
	}

	select {
	case a.peers.turn <- struct{}{}:
		defer func() { <-a.peers.turn }()
	case <-ctx.Done():
		return nil, upstream.Interrupted(ctx, ctx.Err())
	}

	known := a.peers.get()
	if known != nil && time.Since(known.read) < cardLife {
		return known, nil
	}

	found, err := a.fetch(ctx)
	switch {
	case err == nil:
		a.peers.put(found)
		return found, nil
	case known != nil && time.Since(known.read) < cardStale && !fault.Of(err).Permanent && ctx.Err() == nil:
		return known, nil
	}

	return nil, err
}

// forget makes the next turn read the card anew: the agent may have moved.
func (a *Agent) forget(moved *peer) {
	if a.peers.get() == moved {
		a.peers.put(nil)
	}
}

func (a *Agent) fetch(ctx context.Context) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, cardLimit)
	defer cancel()
	body, err := a.fetchCard(ctx, false)
	if errors.Is(err, errNeedsLogin) && a.credentials.any() {
		body, err = a.fetchCard(ctx, true)
	}
	if err != nil {
		return nil, err
	}

	read, err := readCard(body)
	if err != nil {
		return nil, upstream.Misconfigured(err)
	}
	if err := a.checkSignature(ctx, body); err != nil {
		return nil, upstream.Misconfigured(err)
	}

	chosen, err := read.choose(a.allowed)
	if err != nil {
		return nil, upstream.Misconfigured(err)
	}

	return &peer{
		endpoint: chosen, card: read, streaming: read.Capabilities.Streaming, client: a.clientFor(chosen.url), read: time.Now(),
	}, nil
}

var errNeedsLogin = errors.New("the agent card is not public")

// fetchCard reads the document. Redirects stay on the host that the operator wrote.
func (a *Agent) fetchCard(ctx context.Context, login bool) ([]byte, error) {
	options := safehttp.GetOptions{Accept: "application/json", MaxBytes: maxCardBytes, Sign: func(request *http.Request) error {
		switch {
		case a.card.Scheme == "https" && request.URL.Scheme != "https": // also on the card's own port
			return fmt.Errorf("%w: the card redirects away from https", errMoved)
		case hostPort(request.URL) != hostPort(a.card):
			return fmt.Errorf("%w: the card redirects to %s, another host: configure the final address", errMoved, excerpt(request.URL.Host))
		case login:
			return a.credentials.show(request)
		}
		return nil
	}}

	response, err := a.cards.Get(ctx, a.card.String(), options)
	if err != nil {
		return nil, a.noCard(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()

	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return nil, upstream.Misconfigured(fmt.Errorf("%w: %d", errNeedsLogin, status))
	case status != http.StatusOK:
		return nil, upstream.Status(status, upstream.RetryAfter(response.Header), fmt.Errorf("the agent card is answered with %d", status))
	}

	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, a.noCard(ctx, err)
	}

	return body, nil
}

var errMoved = errors.New("redirect refused")

func (a *Agent) noCard(ctx context.Context, err error) error {
	if errors.Is(err, errMoved) {
		return upstream.Misconfigured(err)
	}
	return upstream.Interrupted(ctx, fmt.Errorf("read the agent card: %w", err))
}

// changed remembers what was learnt about the agent: that it speaks 0.3 only, or does not stream.
func (a *Agent) changed(from *peer, change func(*peer)) *peer {
	learnt := *from
	change(&learnt)
	if a.peers.get() == from {
		a.peers.put(&learnt)
	}
	return &learnt
}

func (p *peer) old() bool { return p.version == a2av0.Version }

// switchVersion tries the other version, with the streaming that the card promised.
func (p *peer) switchVersion(streaming bool) {
	p.streaming = streaming
	if p.old() {
		p.version = a2a.Version
	} else {
		p.version = a2av0.Version
	}
}

func stopStreaming(p *peer) { p.streaming = false }

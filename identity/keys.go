package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How long key documents are kept. A key that its issuer withdraws is believed for keepDocument at most.
const (
	keepDocument   = 10 * time.Minute
	keepFailure    = time.Minute
	refreshPause   = 30 * time.Second // between two refreshes of one issuer for keys that it does not list
	fetchTimeout   = 10 * time.Second
	maxKeptIssuers = 256
)

// Documents fetches key documents: at most MaxKeyDocumentBytes, without redirects, through the guarded client.
type Documents interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
}

// keyCache holds the key documents of trusted issuers. At most one fetch an issuer is on its way at a time, and nobody
// but the callers who need it waits for it.
type keyCache struct {
	documents Documents
	now       func() time.Time
	allowHTTP bool

	mu      sync.Mutex
	issuers map[string]*issuerKeys
}

// issuerKeys is guarded by keyCache.mu.
type issuerKeys struct {
	document  *keyDocument // with err: the last outcome
	err       error
	expires   time.Time
	refreshed time.Time // last refresh for an unknown key
	flight    *flight   // nil = no fetch on its way
}

// flight is one fetch; its outcome is written before done is closed.
type flight struct {
	done     chan struct{}
	document *keyDocument
	err      error
}

// find returns a key of a canonical issuer. A key that a kept document does not list causes one refresh.
func (c *keyCache) find(ctx context.Context, issuer, kid string) (key publishedKey, owner string, found bool, err error) {
	document, kept, err := c.current(ctx, issuer)
	if err != nil {
		return publishedKey{}, "", false, err
	}
	key, found = document.keys[document.name(kid)]
	if found || !kept {
		return key, document.owner, found, nil
	}
	if document, err = c.refresh(ctx, issuer, document); err != nil {
		return publishedKey{}, "", false, err
	}
	key, found = document.keys[document.name(kid)]
	return key, document.owner, found, nil
}

// current returns the document that is kept, or waits for a fetch.
func (c *keyCache) current(ctx context.Context, issuer string) (document *keyDocument, kept bool, err error) {
	c.mu.Lock()
	keys := c.entry(issuer)
	if c.now().Before(keys.expires) {
		defer c.mu.Unlock()
		return keys.document, true, keys.err
	}
	flight := c.fly(ctx, issuer, keys)
	c.mu.Unlock()
	document, err = flight.wait(ctx)
	return document, false, err
}

// refresh asks the issuer again because seen lacks a key; too soon after the last time it returns what is there.
func (c *keyCache) refresh(ctx context.Context, issuer string, seen *keyDocument) (*keyDocument, error) {
	c.mu.Lock()
	keys, now := c.entry(issuer), c.now()
	switch {
	case keys.document != nil && keys.document != seen: // somebody else was faster
		defer c.mu.Unlock()
		return keys.document, nil
	case keys.flight == nil && now.Before(keys.refreshed.Add(refreshPause)):
		c.mu.Unlock()
		return seen, nil
	}
	keys.refreshed = now
	flight := c.fly(ctx, issuer, keys)
	c.mu.Unlock()
	return flight.wait(ctx)
}

// entry returns the room of an issuer and makes one when needed. The lock is held.
func (c *keyCache) entry(issuer string) *issuerKeys {
	keys, found := c.issuers[issuer]
	if !found {
		if len(c.issuers) >= maxKeptIssuers {
			c.forgetOne()
		}
		keys = &issuerKeys{}
		c.issuers[issuer] = keys
	}
	return keys
}

// forgetOne removes the issuer whose document ends first.
func (c *keyCache) forgetOne() {
	first := ""
	for issuer, keys := range c.issuers {
		if first == "" || keys.expires.Before(c.issuers[first].expires) {
			first = issuer
		}
	}
	delete(c.issuers, first)
}

// fly joins the fetch on its way or starts one, which does not end with the caller: others may wait for it, too. The
// lock is held.
func (c *keyCache) fly(ctx context.Context, issuer string, keys *issuerKeys) *flight {
	if keys.flight == nil {
		keys.flight = &flight{done: make(chan struct{})}
		go c.run(context.WithoutCancel(ctx), issuer, keys, keys.flight)
	}
	return keys.flight
}

func (c *keyCache) run(ctx context.Context, issuer string, keys *issuerKeys, flight *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	flight.document, flight.err = c.fetch(ctx, issuer)
	c.mu.Lock()
	c.keep(keys, flight)
	c.mu.Unlock()
	close(flight.done)
}

// keep writes the outcome down. A refresh that failed does not take away what is known.
func (c *keyCache) keep(keys *issuerKeys, flight *flight) {
	keys.flight = nil
	now := c.now()
	switch {
	case flight.err == nil:
		keys.document, keys.err, keys.expires = flight.document, nil, now.Add(keepDocument)
	case keys.document == nil || !now.Before(keys.expires):
		keys.document, keys.err, keys.expires = nil, flight.err, now.Add(keepFailure)
	}
}

func (c *keyCache) fetch(ctx context.Context, issuer string) (*keyDocument, error) {
	address, err := keyDocumentURL(issuer, c.allowHTTP)
	if err != nil {
		return nil, err
	}
	body, err := c.documents.Fetch(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", address, err)
	}
	document, err := parseKeyDocument(issuer, body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	return document, nil
}

func (f *flight) wait(ctx context.Context) (*keyDocument, error) {
	select {
	case <-f.done:
		return f.document, f.err
	case <-ctx.Done():
		return nil, errors.New("no answer in time")
	}
}

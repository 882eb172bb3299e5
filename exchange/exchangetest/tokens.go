package exchangetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"inbox/exchange"
)

// Tokens finds tokens by their hash.
type Tokens struct {
	mu      sync.Mutex
	known   map[string]exchange.Token // by hash
	err     error
	lookups int
}

// NewTokens returns tokens by their text.
func NewTokens(byText map[string]exchange.Token) *Tokens {
	t := &Tokens{known: map[string]exchange.Token{}}
	for text, token := range byText {
		t.Put(text, token)
	}
	return t
}

// Put adds or changes a token.
func (t *Tokens) Put(text string, token exchange.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token.Hash = hashOf(text)
	t.known[token.Hash] = token
}

// Revoke revokes a token now.
func (t *Tokens) Revoke(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := t.known[hashOf(text)]
	token.RevokedAt = time.Now()
	t.known[token.Hash] = token
}

// Remove forgets a token.
func (t *Tokens) Remove(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, hashOf(text))
}

// Fail lets every look-up fail from now on; nil ends that.
func (t *Tokens) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// Lookups returns how often a token was asked for.
func (t *Tokens) Lookups() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lookups
}

// TokenByHash returns a token.
func (t *Tokens) TokenByHash(_ context.Context, hash string) (exchange.Token, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookups++
	token, found := t.known[hash]
	return token, found, t.err
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Package bearer reads the bearer tokens that the operator hands to peers and programs: their form, their hash and a
// short memory of those that were found. It decides nothing about what a token opens; every room does that itself.
package bearer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"inbox/exchange"
	"inbox/internal/capability"
)

const (
	prefix     = "inbox_"
	drawnBytes = 43 // of capability.Long

	// MaxBytes bounds what is taken for a token at all.
	MaxBytes = 512
	// Remembered is how long a Cache remembers a token. It forgets all of them earlier if it is told that some were revoked.
	Remembered = 5 * time.Second
	// MaxRemembered is how many tokens a Cache remembers.
	MaxRemembered = 4096
)

// Mint makes a token: "inbox_" and 32 random bytes as base64url. Its hash is what the store keeps; the token is shown
// once.
func Mint() (token, hash string) {
	token = prefix + capability.Draw(capability.Long)
	return token, Hash(token)
}

// Hash is the lower-case hexadecimal SHA-256 under which a token is kept.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// WellFormed reports whether the text has the form of ours, so that nonsense costs no query.
func WellFormed(token string) bool {
	return strings.HasPrefix(token, prefix) && len(token) == len(prefix)+drawnBytes
}

// Of returns the token of a request's Authorization header (RFC 6750, section 2.1); "" when there is none of at most 512
// bytes.
func Of(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || len(token) > MaxBytes {
		return ""
	}
	return token
}

// Cache remembers the tokens that a source found for a few seconds, because programs ask often. What was not found is
// not remembered, so a new token opens at once. It is safe for concurrent use.
type Cache struct {
	source  exchange.Tokens
	mu      sync.Mutex
	found   *simplelru.LRU[string, entry] // by hash
	changes int                           // how often it was told to forget
}

type entry struct {
	token   exchange.Token
	expires time.Time
}

// NewCache makes an empty cache. One whose source is a *Uses forgets what it knows when that is told of changes.
func NewCache(source exchange.Tokens) *Cache {
	found, _ := simplelru.NewLRU[string, entry](MaxRemembered, nil)
	c := &Cache{source: source, found: found}
	if uses, is := source.(*Uses); is {
		uses.tell(c)
	}
	return c
}

// Find returns the token of a text. Its errors are those of the source.
func (c *Cache) Find(ctx context.Context, token string) (exchange.Token, bool, error) {
	hash, now := Hash(token), time.Now()
	c.mu.Lock()
	known, ok := c.found.Get(hash)
	changes := c.changes
	c.mu.Unlock()
	if ok && now.Before(known.expires) {
		return known.token, true, nil
	}

	read, found, err := c.source.TokenByHash(ctx, hash)
	if err == nil && found {
		c.keep(hash, entry{read, now.Add(Remembered)}, changes)
	}
	return read, found, err
}

// keep remembers a token, unless tokens changed since it was asked for.
func (c *Cache) keep(hash string, one entry, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	c.found.Add(hash, one)
}

func (c *Cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.found.Purge()
}

// UsesEvery is how often Uses writes what it noted.
const UsesEvery = time.Minute

// UsedRows keeps when tokens were shown last.
type UsedRows interface {
	UseTokens(ctx context.Context, used map[string]time.Time) error
}

// Uses finds tokens in a source and notes when valid ones were shown last, at most MaxRemembered between two writes. When it is told
// that tokens changed, caches forget what they know, and what is under way with a token that opens nothing any more ends. It is safe
// for concurrent use.
type Uses struct {
	source exchange.Tokens
	mu     sync.Mutex
	used   map[string]time.Time // by id
	caches []*Cache
	held   map[string]map[*hold]bool // by token
	look   chan struct{}
}

// NewUses makes one that has noted nothing.
func NewUses(source exchange.Tokens) *Uses {
	return &Uses{source: source, used: map[string]time.Time{}, held: map[string]map[*hold]bool{}, look: make(chan struct{}, 1)}
}

func (u *Uses) tell(c *Cache) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.caches = append(u.caches, c)
}

// TokenByHash finds a token as the source does.
func (u *Uses) TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error) {
	token, found, err := u.source.TokenByHash(ctx, hash)
	if now := time.Now(); err == nil && found && token.Valid(now) {
		u.mu.Lock()
		if _, noted := u.used[token.ID]; noted || len(u.used) < MaxRemembered {
			u.used[token.ID] = now
		}
		u.mu.Unlock()
	}
	return token, found, err
}

// Run writes once a minute what was noted, until ctx ends, and then once more. What it could not write is noted again. It also ends what
// is under way with tokens that were revoked or have expired, at once when Changed was called and else once a minute.
func (u *Uses) Run(ctx context.Context, rows UsedRows, failed func(error)) error {
	ticker := time.NewTicker(UsesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			u.write(ctx, rows, failed)
			u.release(ctx)
		case <-u.look:
			u.release(ctx)
		case <-ctx.Done():
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			u.write(ending, rows, failed)
			cancel()
			return nil
		}
	}
}

// lastWrite bounds the write at the end of a server.
const lastWrite = 2 * time.Second

func (u *Uses) write(ctx context.Context, rows UsedRows, failed func(error)) {
	u.mu.Lock()
	used := u.used
	u.used = map[string]time.Time{}
	u.mu.Unlock()
	if len(used) == 0 {
		return
	}

	if err := rows.UseTokens(ctx, used); err != nil {
		u.mu.Lock()
		for id, at := range used {
			if _, later := u.used[id]; !later {
				u.used[id] = at
			}
		}
		u.mu.Unlock()
		failed(err)
	}
}

package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	tokenCacheTTL  = 5 * time.Second // a revoked token opens nothing after it
	maxTokens      = 4096
	maxBearerBytes = 512
)

// authorized finds the agent of a request that shows a token for it. Who may not take turns gets one and the same
// answer, whether there is such an agent or not.
func (s *Service) authorized(handle func(http.ResponseWriter, *http.Request, *Agent) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, err := s.verify(r)
		if err == nil {
			err = handle(w, r, agent)
		}
		if err == nil {
			return
		}
		if fault.Is(err, fault.Unauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="turns"`)
		}
		httpserver.WriteFault(w, err)
	})
}

func (s *Service) verify(r *http.Request) (*Agent, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token for this agent is needed; the operator makes one")
	bearer := bearerOf(r)
	if bearer == "" {
		return nil, refused
	}
	sum := sha256.Sum256([]byte(bearer))
	token, found, err := s.tokens.find(r.Context(), hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, unavailable("checking the token", err)
	}
	name := httpserver.Param(r, "agent")
	if !found || !token.RevokedAt.IsZero() || token.Scope != s.options.Scope || !strings.EqualFold(token.Agent, name) || name == "" {
		return nil, refused
	}
	agent, known := s.find(name)
	if !known { // told to nobody but the holder of a token for this name
		return nil, fault.New(fault.NotFound, "this agent gives no turns away: it is not of kind pull")
	}
	return agent, nil
}

func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || len(token) > maxBearerBytes {
		return ""
	}
	return token
}

// tokenCache remembers valid tokens for a few seconds: programs beat often.
type tokenCache struct {
	source Tokens
	mu     sync.Mutex
	found  map[string]cachedToken
}

type cachedToken struct {
	token   exchange.Token
	expires time.Time
}

func newTokenCache(source Tokens) *tokenCache {
	return &tokenCache{source: source, found: map[string]cachedToken{}}
}

func (c *tokenCache) find(ctx context.Context, hash string) (exchange.Token, bool, error) {
	now := time.Now()
	c.mu.Lock()
	entry, ok := c.found[hash]
	c.mu.Unlock()
	if ok && now.Before(entry.expires) {
		return entry.token, true, nil
	}
	token, found, err := c.source.TokenByHash(ctx, hash)
	if err != nil || !found {
		return token, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) >= maxTokens {
		clear(c.found)
	}
	c.found[hash] = cachedToken{token: token, expires: now.Add(tokenCacheTTL)}
	return token, true, nil
}

package a2a

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

var credentials = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_credentials_total",
	Help: "Bearer tokens checked at the A2A edge, by outcome (valid, missing, unknown, revoked, other_agent, error).",
}, []string{"outcome"})

const (
	tokenPrefix   = "inbox_"
	tokenSecret   = 32 // random bytes
	tokenCacheTTL = 5 * time.Second
	maxTokens     = 4096
)

// MintToken makes a bearer token: "inbox_" and 32 random bytes as base64url. Hash, its lower-case hex SHA-256, is
// what the store keeps; the token is shown once.
func MintToken() (token, hash string) {
	secret := make([]byte, tokenSecret)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	return token, hashToken(token)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// verify finds the token of a request and says whether it opens the agent. Unauthenticated for a missing, unknown or
// revoked token, Forbidden for one that is limited to another agent.
func (a *Adapter) verify(r *http.Request, agent exchange.AgentProfile) (exchange.Token, error) {
	token, outcome, err := a.checkToken(r, agent)
	credentials.WithLabelValues(outcome).Inc()
	return token, err
}

func (a *Adapter) checkToken(r *http.Request, agent exchange.AgentProfile) (exchange.Token, string, error) {
	bearer := bearerOf(r)
	if bearer == "" {
		return exchange.Token{}, "missing", fault.New(fault.Unauthenticated, "a bearer token of this server is needed")
	}
	token, found, err := a.tokens.find(r.Context(), hashToken(bearer))
	switch {
	case err != nil:
		return token, "error", err
	case !found:
		return token, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case !token.RevokedAt.IsZero():
		return token, "revoked", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Scope != exchange.TokenPeer: // an operator's token opens the operator API and no agent
		return token, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Agent != "" && !strings.EqualFold(token.Agent, agent.Name):
		return token, "other_agent", fault.New(fault.Forbidden, "the bearer token is not for this agent")
	}
	return token, "valid", nil
}

// bearerOf gives the token when it has the form of ours, so that nonsense costs no query.
func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(token, tokenPrefix) {
		return ""
	}
	if len(token) != len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(tokenSecret) {
		return ""
	}
	return token
}

// sender is what the token proves: evidence made inside our boundary, with the token's id and never the token.
func (a *Adapter) sender(token exchange.Token, agent exchange.AgentProfile) normalized.Sender {
	return normalized.Sender{
		Address: peerAddress(token, a.options.Domain), DisplayName: token.Name,
		AuthMethod: normalized.AuthA2AOAuth, Verified: true, KeyID: token.ID,
		Identities: []identity.Evidence{{
			Subject: "token:" + token.ID, Issuer: a.options.Domain,
			Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent,
			Audience: identity.Audience{agent.Address}, IssuedAt: identity.Now(),
			Source: &identity.Source{Transport: normalized.ViaA2A},
			Proof:  identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: a.options.Domain, TokenID: token.ID},
		}},
	}
}

// peerAddress is @name@domain; a name that cannot stand in an address is replaced by the token's id.
func peerAddress(token exchange.Token, domain string) string {
	for _, local := range []string{token.Name, "token-" + token.ID} {
		if address, err := identity.ParseAddress(local + "@" + domain); err == nil && address.Local == local {
			return address.String()
		}
	}
	return "@token@" + domain
}

// tokenCache remembers valid tokens for a few seconds: a revoked one stops within tokenCacheTTL.
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
	if err == nil && found {
		c.keep(hash, cachedToken{token: token, expires: now.Add(tokenCacheTTL)})
	}
	return token, found, err
}

func (c *tokenCache) keep(hash string, entry cachedToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) >= maxTokens {
		clear(c.found)
	}
	c.found[hash] = entry
}

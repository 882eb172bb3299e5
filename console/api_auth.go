package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	realm          = `Bearer realm="operator API"`
	maxBearerBytes = 512
)

// authorize lets admin tokens in alone. A peer's token is good for agents and nothing else.
func (a *API) authorize(w http.ResponseWriter, r *http.Request) error {
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	bearer = strings.TrimSpace(bearer)
	if !strings.EqualFold(scheme, "Bearer") || bearer == "" || len(bearer) > maxBearerBytes {
		w.Header().Set("WWW-Authenticate", realm)
		return fault.New(fault.Unauthenticated, "an operator's bearer token is needed; see: inbox tokens create --admin")
	}
	sum := sha256.Sum256([]byte(bearer))
	hash := hex.EncodeToString(sum[:])
	token, found, err := a.Tokens.TokenByHash(r.Context(), hash)
	if err != nil {
		return err
	}
	// The store found the hash already; comparing again in constant time keeps a store that matches loosely out of it.
	if !found || !token.RevokedAt.IsZero() || subtle.ConstantTimeCompare([]byte(token.Hash), []byte(hash)) != 1 {
		w.Header().Set("WWW-Authenticate", realm+`, error="invalid_token"`)
		return fault.New(fault.Unauthenticated, "the bearer token is not valid")
	}
	if token.Scope != exchange.TokenAdmin {
		w.Header().Set("WWW-Authenticate", realm+`, error="insufficient_scope", scope="`+exchange.TokenAdmin+`"`)
		return fault.New(fault.Forbidden, "the bearer token is a peer's; the operator API needs one of: inbox tokens create --admin")
	}
	return nil
}

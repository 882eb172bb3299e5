package console

import (
	"crypto/subtle"
	"net/http"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

const realm = `Bearer realm="operator API"`

// authorize lets admin tokens in alone. A peer's token is good for agents and nothing else.
func (a *API) authorize(w http.ResponseWriter, r *http.Request) (exchange.Token, error) {
	shown := bearer.Of(r)
	if shown == "" {
		w.Header().Set("WWW-Authenticate", realm)
		return exchange.Token{}, fault.New(fault.Unauthenticated, "an operator's bearer token is needed; see: inbox tokens create --admin")
	}
	hash := bearer.Hash(shown)
	token, found, err := a.Tokens.TokenByHash(r.Context(), hash)
	if err != nil {
		return token, err
	}
	// The store found the hash already; comparing again in constant time keeps a store that matches loosely out of it.
	if !found || !token.RevokedAt.IsZero() || subtle.ConstantTimeCompare([]byte(token.Hash), []byte(hash)) != 1 {
		w.Header().Set("WWW-Authenticate", realm+`, error="invalid_token"`)
		return token, fault.New(fault.Unauthenticated, "the bearer token is not valid")
	}
	if token.Scope != exchange.TokenAdmin {
		w.Header().Set("WWW-Authenticate", realm+`, error="insufficient_scope", scope="`+exchange.TokenAdmin+`"`)
		return token, fault.New(fault.Forbidden, "the bearer token is a peer's; the operator API needs one of: inbox tokens create --admin")
	}
	return token, nil
}

// tokenKey is the context key of the token with which an operator calls.
type tokenKey struct{}

// caller names who calls, for the record.
func caller(r *http.Request) string {
	token, _ := r.Context().Value(tokenKey{}).(exchange.Token)
	return "operator:" + token.Name
}

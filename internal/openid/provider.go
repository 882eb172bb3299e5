// Package openid sends a browser to an OpenID provider and verifies what comes back (OpenID Connect Core 1.0): the code
// flow with PKCE S256, a nonce, and an ID token whose signature, issuer, audience and times are checked. It keeps
// nothing between the two steps; state, nonce and verifier belong to its caller. It is no session and grants nothing.
package openid

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Doer sends one request and follows no redirect; *safehttp.Client is one.
type Doer interface {
	Do(request *http.Request) (*http.Response, error)
}

// Options configure a Provider. Name, Issuer, ClientID, RedirectURL and HTTP are required.
type Options struct {
	Name         string // of the login, as configured and as shown on the page
	Issuer       string // https URL, exactly as the provider's discovery document writes it
	ClientID     string
	ClientSecret string   // empty = a public client, which PKCE alone protects
	RedirectURL  string   // our callback, as registered with the provider
	Scopes       []string // beside openid; empty = email
	HTTP         Doer
	Timeout      time.Duration // of each conversation with the provider; 15 s
	Now          func() time.Time
}

// Provider is one configured login. Its discovery document and keys are fetched when they are first needed and kept
// for an hour. It is safe for concurrent use.
type Provider struct {
	options Options
	client  *http.Client

	mutex      sync.Mutex
	found      *oidc.Provider
	foundUntil time.Time
}

// Identity is who the provider says that the browser's user is.
type Identity struct {
	Issuer          string
	Subject         string
	Email           string // empty unless the provider says that it is verified
	Name            string // for display
	TokenHash       string // lower-case hex SHA-256 of the ID token, for the audit trail; the token is not kept
	AuthenticatedAt time.Time
}

// Name gives the name of the login.
func (p *Provider) Name() string { return p.options.Name }

var _ = context.Background

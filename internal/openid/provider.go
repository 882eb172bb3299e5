// Package openid sends a browser to an OpenID provider and verifies what comes back (OpenID Connect Core 1.0): the code
// flow with PKCE S256, a nonce, and an ID token whose signature, issuer, audience and times are checked. It keeps
// nothing between the two steps; state, nonce and verifier belong to its caller. It is no session and grants nothing.
package openid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"inbox/internal/fault"
)

const (
	defaultTimeout = 15 * time.Second
	keepFound      = time.Hour        // a provider that moves its endpoints or keys is followed within this time
	keepFailure    = 10 * time.Second // a provider that is down is not asked for every visitor
)

// Doer sends one request and follows no redirect; *safehttp.Client is one.
type Doer interface {
	Do(request *http.Request) (*http.Response, error)
}

// Options configure a Provider. Name, Issuer, ClientID, RedirectURL and HTTP are required.
type Options struct {
	Name         string // of the login, as configured and as shown on the page
	Issuer       string // URL, exactly as the provider's discovery document writes it
	ClientID     string
	ClientSecret string   // empty = a public client, which PKCE alone protects
	RedirectURL  string   // our callback, as registered with the provider
	Scopes       []string // beside openid; empty = email
	GroupsClaim  string   // claim of the ID token with the names of groups; empty = groups
	HTTP         Doer
	Timeout      time.Duration // of one request to the provider; 15 s
	Now          func() time.Time
}

// Provider is one configured login. Its discovery document and keys are fetched when they are first needed and kept
// for an hour. It is safe for concurrent use.
type Provider struct {
	options Options
	client  *http.Client
	turn    chan struct{} // holds one token: its holder may read and change the fields below
	found   *oidc.Provider
	until   time.Time // found or failure is kept until then
	failure error
}

// New makes a Provider; nothing is fetched yet.
func New(options Options) (*Provider, error) {
	issuer, err := url.Parse(options.Issuer)
	switch {
	case err != nil || issuer.Host == "" || (issuer.Scheme != "https" && issuer.Scheme != "http"):
		return nil, fmt.Errorf("login %q: issuer must be a URL such as https://accounts.example", options.Name)
	case options.Name == "" || options.ClientID == "" || options.RedirectURL == "" || options.HTTP == nil:
		return nil, fmt.Errorf("login %q: name, client_id and redirect URL are required", options.Name)
	}

	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	if options.Now == nil {
		options.Now = time.Now
	}
	options.GroupsClaim = cmp.Or(options.GroupsClaim, "groups")
	if len(options.Scopes) == 0 {
		options.Scopes = []string{"email"}
	}

	client := &http.Client{
		Transport: roundTripper{options.HTTP}, Timeout: options.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	return &Provider{options: options, client: client, turn: make(chan struct{}, 1)}, nil
}

// roundTripper lets the libraries speak through our own client.
type roundTripper struct{ doer Doer }

// RoundTrip sends one request.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.doer.Do(request)
}

// Origin returns scheme and host of the issuer.
func (p *Provider) Origin() string {
	issuer, err := url.Parse(p.options.Issuer)
	if err != nil {
		return "" // cannot be: New has read it
	}
	return issuer.Scheme + "://" + issuer.Host
}

// Name returns the name of the login.
func (p *Provider) Name() string { return p.options.Name }

// AuthorizationURL returns the address to which the browser is sent (OpenID Connect Core, section 3.1.2.1). Verifier is
// the PKCE code verifier (RFC 7636); only its S256 challenge is in the address. fault.Unavailable when the provider's
// discovery document cannot be read.
func (p *Provider) AuthorizationURL(ctx context.Context, state, nonce, verifier string) (string, error) {
	provider, err := p.provider(ctx)
	if err != nil {
		return "", err
	}
	return p.config(provider).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// ReauthenticationURL is AuthorizationURL for someone who is to prove anew who they are, though the provider may know the browser
// (prompt=login, max_age=0). Whether it did so, Identity.AuthenticatedAt tells.
func (p *Provider) ReauthenticationURL(ctx context.Context, state, nonce, verifier string) (string, error) {
	provider, err := p.provider(ctx)
	if err != nil {
		return "", err
	}
	return p.config(provider).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier),
		oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0")), nil
}

// metadata is what is read of a discovery document beside what go-oidc reads.
type metadata struct {
	ReturnsIssuer bool   `json:"authorization_response_iss_parameter_supported"` // RFC 9207, section 3
	EndSession    string `json:"end_session_endpoint"`                           // OpenID Connect RP-Initiated Logout 1.0, section 2.1
}

func metadataOf(provider *oidc.Provider) (m metadata) {
	_ = provider.Claims(&m) // go-oidc has read the same document
	return m
}

// LogoutURL returns the address at which the browser's session with the provider ends (OpenID Connect RP-Initiated Logout 1.0); empty
// where the provider publishes none, or cannot be reached now. No ID token is kept as a hint, so the provider may ask the user first;
// and the browser is not sent back, because providers refuse an address that was not registered for it.
func (p *Provider) LogoutURL(ctx context.Context) string {
	provider, err := p.provider(ctx)
	if err != nil {
		return ""
	}

	issuer, issuerErr := url.Parse(p.options.Issuer)
	end, err := url.Parse(metadataOf(provider).EndSession)
	if err != nil || issuerErr != nil || end.Host == "" || end.User != nil || end.Scheme != "https" && end.Scheme != issuer.Scheme {
		return ""
	}

	query := end.Query()
	query.Set("client_id", p.options.ClientID)
	end.RawQuery = query.Encode()
	return end.String()
}

func (p *Provider) config(provider *oidc.Provider) *oauth2.Config {
	scopes := append([]string{oidc.ScopeOpenID}, slices.DeleteFunc(slices.Clone(p.options.Scopes), func(scope string) bool { return scope == oidc.ScopeOpenID })...)
	return &oauth2.Config{
		ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, RedirectURL: p.options.RedirectURL,
		Endpoint: provider.Endpoint(), Scopes: scopes,
	}
}

// provider returns the discovered provider, fetching it when it is not there or too old. An old one outlives a failure.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, unreachable(ctx.Err())
	}

	if p.options.Now().Before(p.until) && (p.found != nil || p.failure != nil) {
		return p.found, p.failureUnlessFound()
	}

	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.options.Issuer)
	if err != nil {
		if ctx.Err() == nil { // an impatient visitor says nothing about the provider
			p.failure, p.until = unreachable(err), p.options.Now().Add(keepFailure)
		}
		if p.found != nil {
			return p.found, nil
		}
		return nil, unreachable(err)
	}

	p.found, p.failure, p.until = found, nil, p.options.Now().Add(keepFound)
	return found, nil
}

func (p *Provider) failureUnlessFound() error {
	if p.found != nil {
		return nil
	}
	return p.failure
}

func unreachable(err error) error {
	return fault.Wrap(fault.Unavailable, "the login service cannot be reached now; try again later", fmt.Errorf("ask OpenID provider: %w", err))
}

// rejected reports that the proof itself is bad, not the way to it.
func rejected(err error) error {
	return fault.Wrap(fault.Unauthenticated, "the login was not confirmed by its service", err)
}

// classed tells a refused code or token from a provider that cannot be reached.
func classed(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode/100 == 4 {
		return rejected(fmt.Errorf("redeem code: %w", err))
	}
	return unreachable(fmt.Errorf("redeem code: %w", err))
}

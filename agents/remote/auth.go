package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

const (
	tokenMargin   = 30 * time.Second // a token that ends sooner is not used any more
	tokenLimit    = 15 * time.Second // of one request for a token
	maxTokenBytes = 16 << 10
)

// credentials are what we show to the other agent. Nothing of ours prints them.
type credentials struct {
	fixed  string
	grant  *clientcredentials.Config
	client *safehttp.Client
	turn   chan struct{} // held by the one who asks for a token

	mu    sync.Mutex
	token *oauth2.Token
}

func newCredentials(options Options) (*credentials, error) {
	c := &credentials{fixed: options.Token, turn: make(chan struct{}, 1)}
	if strings.ContainsFunc(options.Token, func(char rune) bool { return char <= ' ' || char > '~' }) {
		return nil, fault.InField("token", "must be one word of ASCII, as a header carries it")
	}

	given := options.Credentials
	if given == nil {
		return c, nil
	}

	address, err := url.Parse(given.TokenURL)
	switch {
	case options.Token != "":
		return nil, fault.InField("token", "does not go with client_id: use one of them")
	case err != nil || address.Hostname() == "" || address.Scheme != "http" && address.Scheme != "https" || address.User != nil || address.Fragment != "":
		return nil, fault.InField("token_url", "must be an address such as https://login.example.org/oauth/token")
	case given.ClientID == "":
		return nil, fault.InField("client_id", "is required with token_url")
	case given.ClientSecret == "":
		return nil, fault.InField("client_secret", "is required with client_id")
	}

	c.grant = &clientcredentials.Config{
		TokenURL: given.TokenURL, ClientID: given.ClientID, ClientSecret: given.ClientSecret, Scopes: given.Scopes,
	}

	c.client = options.Client.Trusting(hostPort(address)).Limit(maxTokenBytes)
	return c, nil
}

func (c *credentials) any() bool { return c.fixed != "" || c.grant != nil }

// renewable reports whether a refused token can be exchanged for a new one.
func (c *credentials) renewable() bool { return c.grant != nil }

func (c *credentials) close() {
	if c.client != nil {
		c.client.Close()
	}
}

// show puts the token into a request.
func (c *credentials) show(request *http.Request) error {
	if !c.any() {
		return nil
	}

	token := c.fixed
	if c.grant != nil {
		got, err := c.get(request.Context())
		if err != nil {
			return err
		}
		token = got
	}

	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// reject drops a token that was refused, so that the next request brings a new one.
func (c *credentials) reject() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = nil
}

func (c *credentials) current() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == nil || !c.token.Expiry.IsZero() && time.Until(c.token.Expiry) < tokenMargin {
		return ""
	}
	return c.token.AccessToken
}

// get returns a token that is good for a while; many turns at once ask for one.
func (c *credentials) get(ctx context.Context) (string, error) {
	if token := c.current(); token != "" {
		return token, nil
	}

	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}

	if token := c.current(); token != "" {
		return token, nil
	}

	token, err := c.ask(ctx)
	if err != nil {
		return "", err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
	return token.AccessToken, nil
}

func (c *credentials) ask(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenLimit)
	defer cancel()

	token, err := c.grant.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport: doer{c.client}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))

	refused, isRefusal := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case isRefusal: // its own text holds the answer, which may hold anything
		cause := fmt.Errorf("the token address answered %d: %q", refused.Response.StatusCode, excerpt(refused.ErrorCode))
		if status := refused.Response.StatusCode; status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
			return nil, upstream.Down(upstream.RetryAfter(refused.Response.Header), cause)
		}
		return nil, upstream.Misconfigured(cause)
	case err != nil:
		return nil, upstream.Interrupted(ctx, fmt.Errorf("ask for a token: %w", err))
	case !strings.EqualFold(token.Type(), "Bearer"):
		return nil, upstream.Misconfigured(fmt.Errorf("the token is of type %q, want Bearer", excerpt(token.Type())))
	case strings.ContainsFunc(token.AccessToken, func(char rune) bool { return char <= ' ' || char > '~' }):
		return nil, upstream.Misconfigured(errors.New("the token does not fit into a header"))
	}

	return token, nil
}

// doer lets net/http's client speak through ours.
type doer struct{ client *safehttp.Client }

func (d doer) RoundTrip(request *http.Request) (*http.Response, error) { return d.client.Do(request) }

package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
)

// oldCardRel is read and never written (message contract, section 11).
const oldCardRel = "https://mentionable.dev/agent-card"

const (
	peerLife      = 10 * time.Minute
	maxCardBytes  = 256 << 10
	maxErrorBytes = 16 << 10
)

// peer is an agent elsewhere as its card describes it.
type peer struct {
	address  string // as its own server writes it: evidence is for exactly this name
	endpoint string // JSON-RPC
	version  a2a.ProtocolVersion
	open     bool // its card demands no authentication
	expires  time.Time
}

// resolve finds where an agent takes tasks: WebFinger at its domain, its card, the endpoint in it.
func (c *Caller) resolve(ctx context.Context, to identity.Address) (peer, error) {
	if known, ok := c.peers.get(to.String()); ok {
		return known, nil
	}

	named, card, err := c.cardLink(ctx, to)
	if err != nil {
		return peer{}, err
	}

	found, err := c.readCard(ctx, to, card)
	if err != nil {
		return peer{}, err
	}

	found.address = named
	found.expires = time.Now().Add(peerLife)
	c.peers.put(to.String(), found)
	return found, nil
}

// cardLink asks the domain for the name of the agent and the address of its card (RFC 7033).
func (c *Caller) cardLink(ctx context.Context, to identity.Address) (named string, card *url.URL, err error) {
	asked := c.scheme(to.Domain) + "://" + to.Domain + "/.well-known/webfinger?resource=" + url.QueryEscape(to.Acct())
	body, final, err := c.fetch(ctx, asked, "application/jrd+json, application/json")
	if err != nil {
		return "", nil, err
	}

	var found struct {
		Subject string          `json:"subject"`
		Links   []exchange.Link `json:"links"`
	}

	if err := json.Unmarshal(body, &found); err != nil {
		return "", nil, fault.GiveUp("the server of the other agent does not describe it", err)
	}

	named, same := sameAgent(to, found.Subject)
	if !same {
		return "", nil, fault.GiveUp("the server of the other agent describes another agent", nil)
	}

	for _, rel := range []string{CardRel, oldCardRel} {
		for _, link := range found.Links {
			if link.Rel == rel {
				card, err := c.allowed(link.Href, final)
				return named, card, err
			}
		}
	}

	return "", nil, fault.GiveUp("the address cannot be called: it has no agent card", nil)
}

// scheme is http only in development, and only where a port shows that no public server is meant.
func (c *Caller) scheme(domain string) string {
	if c.options.AllowHTTP && identity.HostOf(domain) != domain {
		return "http"
	}
	return "https"
}

// fetch reads a discovery document, over one redirect at most.
func (c *Caller) fetch(ctx context.Context, address, accept string) (body []byte, final *url.URL, err error) {
	response, err := c.options.Client.Get(ctx, address, safehttp.GetOptions{Accept: accept, MaxBytes: maxCardBytes, MaxRedirects: 1})
	if err != nil {
		return nil, nil, unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()

	final = response.Request.URL
	switch status := response.StatusCode; {
	case final.Scheme != "https" && !c.options.AllowHTTP:
		return nil, nil, fault.GiveUp("the other server leads away from https", nil)
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return nil, nil, fault.RetryIn(retryAfter(response.Header), "the server of the other agent does not answer right now", nil)
	case status != http.StatusOK:
		return nil, nil, fault.GiveUp("there is no agent of that address", nil)
	}

	var read bytes.Buffer
	if _, err := read.ReadFrom(io.LimitReader(response.Body, maxCardBytes+1)); err != nil {
		return nil, nil, unreachable(err)
	}
	if read.Len() > maxCardBytes {
		return nil, nil, fault.GiveUp("the other server describes the agent with too many words", nil)
	}

	return read.Bytes(), final, nil
}

// unreachable classes trouble of the network.
func unreachable(err error) error {
	switch {
	case errors.Is(err, safehttp.ErrRefused), errors.Is(err, safehttp.ErrRedirects), errors.Is(err, safehttp.ErrTooLarge):
		return fault.GiveUp("the server of the other agent cannot be called", err)
	}
	return fault.RetryIn(0, "the server of the other agent cannot be reached", err)
}

// sameAgent reports whether a document names the agent that was asked for, in any spelling of its local part, and returns
// the document's spelling.
func sameAgent(asked identity.Address, text string) (named string, same bool) {
	found, err := identity.ParseAddress(strings.TrimPrefix(text, "acct:"))
	if err != nil {
		return "", false
	}
	return found.String(), identity.CanonicalAgent(found) == identity.CanonicalAgent(asked)
}

// allowed takes an address out of a document: https anywhere, because the document names it, or the document's own
// origin.
func (c *Caller) allowed(text string, document *url.URL) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
	case u.Scheme == "https", u.Scheme == document.Scheme && u.Host == document.Host && c.options.AllowHTTP:
		return u, nil
	}
	return nil, fault.GiveUp("the other agent names an address that cannot be called", err)
}

// peerCard is what we read of a card in the form of the message contract, section 11.
type peerCard struct {
	Address string `json:"address"`
	A2A     struct {
		Endpoint        string `json:"endpoint"`
		Transport       string `json:"transport"`
		ProtocolVersion string `json:"protocol_version"`
		Auth            struct {
			Scheme string `json:"scheme"`
		} `json:"auth"`
	} `json:"a2a"`
}

func (c *Caller) readCard(ctx context.Context, to identity.Address, at *url.URL) (peer, error) {
	body, final, err := c.fetch(ctx, at.String(), mimeJSON)
	if err != nil {
		return peer{}, err
	}
	if err := c.checkSignature(ctx, body, final); err != nil {
		return peer{}, err
	}

	var card peerCard
	if err := json.Unmarshal(body, &card); err != nil {
		return peer{}, fault.GiveUp("the card of the other agent cannot be read", err)
	}

	switch _, same := sameAgent(to, card.Address); {
	case card.Address != "" && !same:
		return peer{}, fault.GiveUp("the card is of another agent", nil)
	case card.A2A.Transport != "" && card.A2A.Transport != "https+jsonrpc":
		return peer{}, fault.GiveUp("the other agent does not take JSON-RPC", nil)
	}

	endpoint, err := c.allowed(card.A2A.Endpoint, final)
	if err != nil {
		return peer{}, err
	}

	found := peer{endpoint: endpoint.String(), version: a2a.Version, open: card.A2A.Auth.Scheme == "none"}
	if strings.HasPrefix(card.A2A.ProtocolVersion, string(a2av0.Version)) {
		found.version = a2av0.Version
	}

	return found, nil
}

var checkedCards = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_card_signatures_total",
	Help: "Cards of agents elsewhere that our agents call, by outcome of their signatures (valid, unsigned, unknown, forged).",
}, []string{"outcome"})

const maxKeySetBytes = 256 << 10

// checkSignature refuses a card whose signature names a key of the card's own origin and does not fit: the card was changed
// on the way. A card without a signature, or with a key from elsewhere, is what TLS says that it is and no more: who signs
// chooses the place of the key, so that a signature by it proves nothing. Keys that cannot be had now are asked for again.
func (c *Caller) checkSignature(ctx context.Context, card []byte, at *url.URL) error {
	var signed struct {
		Signatures []json.RawMessage `json:"signatures"`
	}

	_ = json.Unmarshal(card, &signed) // what cannot be read has no signature; readCard says so
	if len(signed.Signatures) == 0 {
		checkedCards.WithLabelValues("unsigned").Inc()
		return nil
	}

	keys, err := c.keysOf(ctx, at)
	if err != nil {
		return err
	}

	switch err := webtoken.VerifyWhole(card, keys); {
	case errors.Is(err, webtoken.ErrCardForged):
		checkedCards.WithLabelValues("forged").Inc()
		return fault.GiveUp("the card of the other agent was changed after it was signed", err)
	case err != nil:
		checkedCards.WithLabelValues("unknown").Inc()
	default:
		checkedCards.WithLabelValues("valid").Inc()
	}

	return nil
}

// keysOf reads the key set of an origin; none where it publishes none.
func (c *Caller) keysOf(ctx context.Context, card *url.URL) ([]byte, error) {
	at := url.URL{Scheme: card.Scheme, Host: card.Host, Path: "/.well-known/jwks.json"}
	options := safehttp.GetOptions{Accept: "application/jwk-set+json, application/json", MaxBytes: maxKeySetBytes, MaxRedirects: -1}
	response, err := c.options.Client.Get(ctx, at.String(), options)
	switch {
	case errors.Is(err, safehttp.ErrRedirects):
		return nil, nil
	case err != nil:
		return nil, unreachable(err)
	}

	defer func() { _ = response.Body.Close() }()

	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return nil, fault.RetryIn(retryAfter(response.Header), "the server of the other agent does not answer right now", nil)
	case status != http.StatusOK:
		return nil, nil
	}

	keys, err := io.ReadAll(io.LimitReader(response.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, unreachable(err)
	}

	return keys, nil
}

const maxPeers = 1024 // cards kept

// peerCache remembers cards for a few minutes.
type peerCache struct {
	mu    sync.Mutex
	found map[string]peer
}

func newPeerCache() *peerCache { return &peerCache{found: map[string]peer{}} }

func (p *peerCache) get(address string) (peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.found[address]
	return found, ok && time.Now().Before(found.expires)
}

func (p *peerCache) put(address string, found peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.found) >= maxPeers {
		clear(p.found)
	}
	p.found[address] = found
}

func (p *peerCache) drop(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.found, address)
}

package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

const wellKnown = "/.well-known/agent-card.json"

// cardAddress checks the operator's address. One that names neither a document nor a well-known place is a base.
func cardAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, fault.InField("card_url", "must be an address such as https://agent.example.org"+wellKnown)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fault.InField("card_url", "must begin with https:// or http://")
	case u.User != nil:
		return nil, fault.InField("card_url", "must not carry a user or password: use token or client_id and client_secret")
	case u.Fragment != "":
		return nil, fault.InField("card_url", "must not have a fragment")
	}

	if path.Ext(u.Path) != ".json" && !strings.Contains(u.Path, "/.well-known/") {
		u = u.JoinPath(wellKnown)
	}

	return u, nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// card is what we read of an agent card: 1.0 and 0.3 in one, and the endpoint of the message contract, section 11. The
// SDK's reader refuses a whole card for one login scheme that it does not know, and drops 0.3 cards that leave the
// default transport out.
type card struct {
	Address string `json:"address"`

	SupportedInterfaces []agentInterface `json:"supportedInterfaces"`

	URL                  string           `json:"url"`
	PreferredTransport   string           `json:"preferredTransport"`
	ProtocolVersion      string           `json:"protocolVersion"`
	AdditionalInterfaces []agentInterface `json:"additionalInterfaces"`

	SecuritySchemes map[string]json.RawMessage `json:"securitySchemes"`

	Capabilities struct {
		Streaming bool `json:"streaming"`
	} `json:"capabilities"`
	DefaultOutputModes []string `json:"defaultOutputModes"`

	A2A struct {
		Endpoint        string `json:"endpoint"`
		Transport       string `json:"transport"`
		ProtocolVersion string `json:"protocol_version"`
		Auth            struct {
			Scheme string `json:"scheme"`
		} `json:"auth"`
	} `json:"a2a"`
}

// guarded reports whether the agent wants to know who asks.
func (c card) guarded() bool {
	return len(c.SecuritySchemes) > 0 || c.A2A.Auth.Scheme != "" && c.A2A.Auth.Scheme != "none"
}

// agentInterface is one address where the agent takes messages.
type agentInterface struct {
	URL             string `json:"url"`
	ProtocolBinding string `json:"protocolBinding"` // 1.0
	Transport       string `json:"transport"`       // 0.3
	ProtocolVersion string `json:"protocolVersion"`
	Tenant          string `json:"tenant"`
}

// endpoint is an agentInterface that we can speak to.
type endpoint struct {
	url     *url.URL
	rest    bool // HTTP+JSON, else JSON-RPC
	version a2a.ProtocolVersion
	tenant  string
}

// maxInterfaces bounds what is read of a card that lists interfaces without end.
const maxInterfaces = 32

func readCard(body []byte) (card, error) {
	var read card
	if err := json.Unmarshal(body, &read); err != nil {
		return card{}, fmt.Errorf("the agent card cannot be read: %w", err)
	}
	return read, nil
}

// interfaces lists them in the card's order of preference, all in the form of 1.0.
func (c card) interfaces() []agentInterface {
	list := slices.Clone(c.SupportedInterfaces)
	if len(list) == 0 && c.URL != "" {
		old := orElse(c.ProtocolVersion, string(a2av0.Version))
		list = append(list, agentInterface{URL: c.URL, ProtocolBinding: orElse(c.PreferredTransport, "JSONRPC"), ProtocolVersion: old})
		for _, other := range c.AdditionalInterfaces {
			other.ProtocolVersion = orElse(other.ProtocolVersion, old)
			list = append(list, other)
		}
	}
	if len(list) == 0 && c.A2A.Endpoint != "" && (c.A2A.Transport == "" || c.A2A.Transport == "https+jsonrpc") {
		list = append(list, agentInterface{URL: c.A2A.Endpoint, ProtocolBinding: "JSONRPC", ProtocolVersion: c.A2A.ProtocolVersion})
	}
	return list[:min(len(list), maxInterfaces)]
}

// choose returns the first interface whose protocol we speak and whose address allowed accepts. The error says what was wrong
// with each.
func (c card) choose(allowed func(*url.URL) error) (endpoint, error) {
	var wrong []error
	for _, offered := range c.interfaces() {
		found, err := offered.endpoint()
		if err == nil {
			err = allowed(found.url)
		}
		if err == nil {
			return found, nil
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", excerpt(offered.URL), err))
	}
	return endpoint{}, fmt.Errorf("the agent card names no endpoint that can be used: %w", errors.Join(wrong...))
}

func (p agentInterface) endpoint() (endpoint, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return endpoint{}, errors.New("is no address of an endpoint")
	}

	found := endpoint{url: u, version: a2a.Version, tenant: p.Tenant}
	switch binding := orElse(p.ProtocolBinding, p.Transport); strings.ToUpper(binding) {
	case "JSONRPC":
	case "HTTP+JSON":
		found.rest = true
	default:
		return endpoint{}, fmt.Errorf("the binding %q is not spoken here", excerpt(binding))
	}

	switch major, _, _ := strings.Cut(p.ProtocolVersion, "."); major {
	case "", "1":
	case "0":
		found.version = a2av0.Version
	default:
		return endpoint{}, fmt.Errorf("version %q is not spoken here", excerpt(p.ProtocolVersion))
	}

	return found, nil
}

// textMIME is the type of text that comes without one.
func (c card) textMIME() string {
	if slices.Contains(c.DefaultOutputModes, normalized.MIMEMarkdown) {
		return normalized.MIMEMarkdown
	}
	return normalized.MIMEPlain
}

// audience names the agent for evidence: the address in its card if that is on the card's own host.
func (c card) audience(at *url.URL) string {
	if address, err := identity.ParseAddress(c.Address); err == nil && strings.EqualFold(identity.HostOf(address.Domain), at.Hostname()) {
		return address.String()
	}
	bare := *at
	bare.RawQuery = ""
	return bare.String()
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

const maxKeyBytes = 256 << 10

// checkSignature refuses a card whose signature names a key of the card's own origin and does not fit. A card without a
// signature, or with keys from elsewhere, is taken as it came over TLS: who signs chooses the place of the key, so that
// such a signature proves nothing.
func (a *Agent) checkSignature(ctx context.Context, card []byte) error {
	if !bytes.Contains(card, []byte(`"signatures"`)) {
		return nil
	}

	origin := *a.card
	origin.Path, origin.RawPath, origin.RawQuery = "/.well-known/jwks.json", "", ""
	options := safehttp.GetOptions{Accept: "application/jwk-set+json, application/json", MaxBytes: maxKeyBytes, MaxRedirects: -1}
	response, err := a.cards.Get(ctx, origin.String(), options)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()

	keys, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}

	if err := webtoken.VerifyCard(card, keys); errors.Is(err, webtoken.ErrCardForged) {
		cardSignatures.WithLabelValues("forged").Inc()
		return err
	} else if err != nil {
		cardSignatures.WithLabelValues("unknown").Inc()
		return nil
	}

	cardSignatures.WithLabelValues("valid").Inc()
	return nil
}

// allowed reports whether the card may lead to an address: any on the card's own host, those that the operator named, and,
// where no credentials could be stolen, any public one over https.
func (a *Agent) allowed(u *url.URL) error {
	switch {
	case a.card.Scheme == "https" && u.Scheme != "https":
		return errors.New("leads away from https")
	case a.trusted(u):
		return nil
	case a.credentials.any():
		return fmt.Errorf("is on another host than the card; add %q to endpoint_hosts if the credentials may be shown there", hostPort(u))
	}
	return a.options.Client.CheckURL(u)
}

func (a *Agent) trusted(u *url.URL) bool {
	return strings.EqualFold(u.Hostname(), a.card.Hostname()) ||
		slices.ContainsFunc(a.options.EndpointHosts, func(hostport string) bool { return strings.EqualFold(hostport, hostPort(u)) })
}

// maxClients bounds the clients of a card that leads elsewhere each time.
const maxClients = 4

// clientFor returns the client of an endpoint: one that trusts it, or one that judges its address at each dial.
func (a *Agent) clientFor(u *url.URL) *safehttp.Client {
	if !a.trusted(u) {
		return a.options.Client.Limit(a.options.MaxResponseBytes)
	}
	if hostPort(u) == hostPort(a.card) {
		return a.cards.Limit(a.options.MaxResponseBytes)
	}

	a.peers.mu.Lock()
	defer a.peers.mu.Unlock()
	client, ok := a.peers.clients[hostPort(u)]
	if !ok {
		if len(a.peers.clients) >= maxClients {
			for other, old := range a.peers.clients {
				old.Close()
				delete(a.peers.clients, other)
			}
		}
		client = a.options.Client.Trusting(hostPort(u)).Limit(a.options.MaxResponseBytes)
		a.peers.clients[hostPort(u)] = client
	}

	return client
}

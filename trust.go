package inbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"inbox/adapters/a2a"
	"inbox/adapters/discovery"
	"inbox/engine/demand"
	"inbox/engine/store"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
)

// trust is what decides which evidence counts and what is asked back: our own key, the validator of others' evidence, the demands.
type trust struct {
	*resources

	keyring    *discovery.Keyring
	networkKey []byte // names networks of senders without proof
	tokenKey   []byte // of the tokens of demands and of guests' sessions
	demands    *demand.Service
}

func newTrust(ctx context.Context, below *resources) (_ *trust, err error) {
	t := &trust{resources: below, keyring: discovery.NewKeyring(below.vault(), below.config.Domain, time.Now)}
	if t.networkKey, err = t.sealer.NetworkKey(ctx); err != nil {
		return nil, err
	}

	if t.tokenKey, err = t.newTokenKey(ctx); err != nil {
		return nil, err
	}

	t.demands, err = t.newDemands()
	return t, err
}

// newValidator makes what checks evidence against the trusted issuers.
func (t *trust) newValidator(config *Config) (*identity.Validator, error) {
	validator, err := identity.NewValidator(identity.ValidatorOptions{
		Trust: config.TrustedIssuers(), Documents: keyDocuments{t.client}, Replays: replays{t.store.State()},
		AllowHTTP: t.config.Federation.AllowPrivate, OwnIssuer: t.config.Domain,
	})
	if err != nil {
		return nil, fmt.Errorf("trust: %w", err)
	}
	return validator, nil
}

// keyDocuments fetches the documents in which trusted issuers publish their keys.
type keyDocuments struct{ client *safehttp.Client }

// maxKeyDocument bounds a key document in bytes.
const maxKeyDocument = 256 << 10

// Fetch gets one document; redirects are not followed, because the place of the document is what its issuer vouches for.
func (d keyDocuments) Fetch(ctx context.Context, address string) ([]byte, error) {
	response, err := d.client.Get(ctx, address, safehttp.GetOptions{Accept: "application/json", MaxBytes: maxKeyDocument, MaxRedirects: -1})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	if status := response.StatusCode; status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
		return nil, fault.RetryIn(0, "the server of a key does not answer right now", fmt.Errorf("%s answered %s", address, response.Status))
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address, response.Status)
	}
	return io.ReadAll(response.Body)
}

const replayNamespace = "identity.replay" // SHA-256 of (issuer, id) → the mark of its use, until the evidence is no longer valid

// replays remembers attestations that were used, on all nodes.
type replays struct{ state *store.State }

// Once reports whether the key is used for the first time.
func (r replays) Once(ctx context.Context, key string, expires time.Time) (bool, error) {
	sum := sha256.Sum256([]byte(key))
	return r.state.Once(ctx, replayNamespace, hex.EncodeToString(sum[:]), expires)
}

const secretNamespace = "policy.secret" // "state" → 32 random bytes, from which tokens are made

// newTokenKey returns the key of tokens that all nodes share; it is made when it is missing.
func (t *trust) newTokenKey(ctx context.Context) ([]byte, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails since Go 1.24
	key, _, err := t.vault().PutIfAbsent(ctx, secretNamespace, "state", fresh, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("make key of tokens: %w", err)
	}
	return key, nil
}

// newDemands makes the service for demands.
func (t *trust) newDemands() (*demand.Service, error) {
	base, err := url.Parse(t.config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}

	options := demand.Options{Store: t.store, BaseURL: base, Secret: t.tokenKey, Logger: t.logger}
	if options.Logins, err = t.logins(); err != nil {
		return nil, err
	}

	if address := t.config.Payments.FacilitatorURL; address != "" {
		target, client, err := t.trustingOperator(address)
		if err != nil {
			return nil, fmt.Errorf("payments.facilitator_url: %w", err)
		}
		options.Facilitator = facilitator.New(facilitator.Options{URL: target, HTTP: client})
	}

	return demand.New(options), nil
}

// logins are the services at which people prove a second identity.
func (t *trust) logins() ([]demand.Login, error) {
	var logins []demand.Login
	for _, entry := range t.config.Logins {
		_, client, err := t.trustingOperator(entry.Issuer)
		if err != nil {
			return nil, fmt.Errorf("login %s: %w", entry.Name, err)
		}

		login, err := openid.New(openid.Options{
			Name: entry.Name, Issuer: entry.Issuer, ClientID: entry.ClientID, ClientSecret: entry.ClientSecret.Reveal(),
			RedirectURL: t.config.PublicURL + "/policy/login/callback", Scopes: entry.Scopes, HTTP: client,
		})
		if err != nil {
			return nil, err
		}
		logins = append(logins, login)
	}

	return logins, nil
}

// newWebTokens makes what checks signed tokens: those of the issuers that the operator configured, and what agents of
// other servers sign for themselves. Hosts that the operator wrote may be private.
func (t *trust) newWebTokens(config *Config) (*webtoken.Verifier, error) {
	options := webtoken.Options{
		Replays: replays{t.store.State()}, Domain: t.config.Domain, AllowHTTP: t.config.Federation.AllowPrivate,
	}

	written := map[string]bool{}
	for i := range config.A2A.Issuers {
		issuer := &config.A2A.Issuers[i]
		options.Issuers = append(options.Issuers, webtoken.Issuer{
			Issuer: issuer.Issuer, JWKSURL: issuer.JWKSURL, Discovery: issuer.Discovery, Audiences: issuer.Audiences,
			Algs: issuer.Algs, Method: issuerMethod(issuer.Method), Untyped: issuer.Untyped, Unscoped: issuer.Unscoped,
		})

		for _, address := range []string{issuer.JWKSURL, issuer.Discovery} {
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				written[hostPortOf(u)] = true
			}
		}
	}

	options.Documents = tokenDocuments{peers: keyDocuments{t.client}, written: written, operator: t.client}
	return webtoken.New(options)
}

func issuerMethod(name string) string {
	switch name {
	case "", "a2a-oauth":
		return identity.MethodA2AOAuth
	case "a2a-jwt":
		return identity.MethodA2AJWT
	}
	return name
}

func hostPortOf(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// tokenDocuments fetches key documents; those on hosts of configured issuers with a client that trusts them.
type tokenDocuments struct {
	peers    keyDocuments
	written  map[string]bool
	operator *safehttp.Client
}

// Fetch gets one document.
func (d tokenDocuments) Fetch(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if host := hostPortOf(u); d.written[host] {
		return keyDocuments{d.operator.Trusting(host)}.Fetch(ctx, address)
	}
	return d.peers.Fetch(ctx, address)
}

// issuerCards are the issuers as cards name them.
func (t *trust) issuerCards() []a2a.IssuerCard {
	issuers := t.now().config.A2A.Issuers
	cards := make([]a2a.IssuerCard, 0, len(issuers))
	for i := range issuers {
		cards = append(cards, a2a.IssuerCard{Name: issuers[i].Issuer, Discovery: issuers[i].Discovery})
	}
	return cards
}

// takesPeer reports whether what a peer signs for itself is worth a look at its keys: it is not kept out, and the agent's
// rules would let it in when it is who it says, or the operator trusts its domain.
func (a *agentSet) takesPeer(agent string, peer identity.Address) bool {
	entry, known := a.registry.Lookup(agent)
	if !known || a.lists.Address(peer.String()).Refused() || a.lists.Host(peer.Domain).Refused() {
		return false
	}
	proven := identity.Transport(identity.TransportProof{
		Domain: a.config.Domain, Subject: peer.Acct(), Method: identity.MethodA2AJWT, Assurance: identity.AssuranceAgent,
		Recipient: entry.Profile.Address, Addressed: identity.AddressedAudience, IssuedAt: time.Now(),
	})
	return entry.Settings.Access.Decide(identity.PurposeMessage, identity.Stated(peer.String()), []identity.Evidence{proven}).Allowed || a.trustsDomain(peer.Domain)
}

// trustsDomain reports whether an entry of [[trust]] in force names a domain or its did:web.
func (t *trust) trustsDomain(domain string) bool {
	now := time.Now()
	return slices.ContainsFunc(t.now().config.Trust, func(entry config.Trust) bool {
		until := entry.Expires
		return (sameIssuer(entry.Issuer, domain) || sameIssuer(entry.Issuer, identity.DIDOf(domain))) && (until.IsZero() || now.Before(until))
	})
}

func sameIssuer(a, b string) bool {
	left, err := identity.CanonicalIssuer(a)
	right, bad := identity.CanonicalIssuer(b)
	return err == nil && bad == nil && left == right
}

// assert signs for one of our agents who it is, for one request to an agent elsewhere.
func (a *agentSet) assert(ctx context.Context, agent, audience string) (string, error) {
	entry, known := a.registry.Lookup(agent)
	if !known {
		return "", fmt.Errorf("no agent %q", agent)
	}
	key, err := a.keyring.Signing(ctx)
	if err != nil {
		return "", err
	}
	return webtoken.Assert(key, entry.Profile.Address, audience, time.Now())
}

// ofPeer reports whether an address is on a domain whose agents the operator named as peers.
func (t *trust) ofPeer(address identity.Address) bool {
	return slices.ContainsFunc(t.now().config.Peers, func(peer config.Peer) bool { return peer.Domain == address.Domain })
}

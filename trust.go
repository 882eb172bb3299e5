package inbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/discovery"
	"inbox/adapters/email"
	"inbox/engine/demand"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/identity"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/internal/safehttp"
	"inbox/operator"
)

// buildTrust makes what decides who is believed and what is asked back: our own key, the judge of others' evidence,
// the demands.
func (s *Server) buildTrust(ctx context.Context) (err error) {
	s.keyring = discovery.NewKeyring(s.vault(), s.config.Domain, time.Now)
	if s.validator, err = identity.NewValidator(identity.ValidatorOptions{
		Trust: s.config.TrustedIssuers(), Documents: keyDocuments{s.client}, Replays: replays{s.store.State()},
		AllowHTTP: s.config.Federation.AllowPrivate, OwnIssuer: s.config.Domain,
	}); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	if s.networkKey, err = s.sealer.NetworkKey(ctx); err != nil {
		return err
	}
	s.demands, err = s.newDemands(ctx)
	return err
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

const replayNamespace = "identity.replay" // SHA-256 of (issuer, id) → "1", until the evidence is no longer valid

// replays remembers attestations that were used, on all nodes.
type replays struct{ state *store.State }

// Once reports whether the key is used for the first time.
func (r replays) Once(ctx context.Context, key string, expires time.Time) (bool, error) {
	sum := sha256.Sum256([]byte(key))
	_, first, err := r.state.PutIfAbsent(ctx, replayNamespace, hex.EncodeToString(sum[:]), []byte("1"), expires)
	return first, err
}

// storageOptions say what belongs together, and which documents are sealed.
func storageOptions(config *Config, logger *slog.Logger) storage.Options {
	return storage.Options{
		DataDir: config.DataDir, DatabaseURL: config.DatabaseURL.Reveal(), DatabaseName: config.DatabaseURL.String(),
		SecretKeyFile: config.SecretKeyFile, NewIdentity: config.NewIdentity, Logger: logger, Traces: []string{operator.AdminTokenFile},
		Sealed: []string{activitypub.KeyNamespace, activitypub.MediaNamespace, discovery.KeyNamespace, email.KeyNamespace, secretNamespace},
	}
}

// vault returns the documents, with private keys as they were put.
func (s *Server) vault() storage.Vault { return s.sealer.Vault() }

const secretNamespace = "policy.secret" // "state" → 32 random bytes, from which the states of demands are derived

// newDemands makes the service for demands with a secret that all nodes share.
func (s *Server) newDemands(ctx context.Context) (*demand.Service, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails since Go 1.24
	secret, _, err := s.vault().PutIfAbsent(ctx, secretNamespace, "state", fresh, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("make secret of demands: %w", err)
	}
	base, err := url.Parse(s.config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}
	options := demand.Options{Store: s.store, BaseURL: base, Secret: secret, Logger: s.logger}
	if options.Logins, err = s.logins(); err != nil {
		return nil, err
	}
	if address := s.config.Payments.FacilitatorURL; address != "" {
		target, client, err := s.trustingOperator(address)
		if err != nil {
			return nil, fmt.Errorf("payments.facilitator_url: %w", err)
		}
		options.Facilitator = facilitator.New(facilitator.Options{URL: target, HTTP: client})
	}
	return demand.New(options), nil
}

// logins are the services at which people prove a second identity.
func (s *Server) logins() ([]demand.Login, error) {
	var logins []demand.Login
	for _, entry := range s.config.Logins {
		_, client, err := s.trustingOperator(entry.Issuer)
		if err != nil {
			return nil, fmt.Errorf("login %s: %w", entry.Name, err)
		}
		login, err := openid.New(openid.Options{
			Name: entry.Name, Issuer: entry.Issuer, ClientID: entry.ClientID, ClientSecret: entry.ClientSecret.Reveal(),
			RedirectURL: s.config.PublicURL + "/policy/login/callback", Scopes: entry.Scopes, HTTP: client,
		})
		if err != nil {
			return nil, err
		}
		logins = append(logins, login)
	}
	return logins, nil
}

// trustingOperator returns a client that also reaches the address that the operator wrote, wherever it is.
func (s *Server) trustingOperator(address string) (*url.URL, *safehttp.Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u, s.client.Trusting(net.JoinHostPort(u.Hostname(), port)), nil
}

// newCaller calls agents of other servers. Hosts of configured peers may be private, because the operator wrote them.
func (s *Server) newCaller() (*a2a.Caller, error) {
	// Agents take their time, and calls must not take the connections of deliveries.
	client := safehttp.New(safehttp.Options{
		AllowPrivate: s.config.Federation.AllowPrivate, Resolver: s.resolver, UserAgent: userAgent(s.config),
		HeaderTimeout: callAnswer, Timeout: callAnswer, MaxPerHost: s.config.Queue.TurnConcurrency, MaxConcurrent: 4 * s.config.Queue.TurnConcurrency,
	})
	tokens := map[string]string{}
	for _, peer := range s.config.Peers {
		tokens[peer.Domain] = peer.Token.Reveal()
		address := peer.Domain
		if identity.HostOf(address) == address {
			address = net.JoinHostPort(address, "443")
		}
		client = client.Trusting(address)
	}
	return a2a.NewCaller(a2a.CallerOptions{
		Client: client, Signer: s.keyring, Domain: s.config.Domain, Blobs: s.blobs, AllowHTTP: s.config.Federation.AllowPrivate,
		Tokens: func(domain string) string { return tokens[domain] }, TimeLimit: callLimit, Assert: s.assert,
	})
}

// callLimit bounds one call to another agent with all its polls, callAnswer one request of it: servers of agents hold
// a blocking request for up to a minute.
const (
	callLimit  = 2 * time.Minute
	callAnswer = 70 * time.Second
)

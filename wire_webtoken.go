package inbox

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"inbox/adapters/a2a"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
)

// newWebTokens makes what checks signed tokens: those of the issuers that the operator configured, and what agents of
// other servers sign for themselves. Hosts that the operator wrote may be private.
func (s *Server) newWebTokens() (*webtoken.Verifier, error) {
	options := webtoken.Options{
		Replays: replays{s.store.State()}, Domain: s.config.Domain, AllowHTTP: s.config.Federation.AllowPrivate,
	}
	written := map[string]bool{}
	for i := range s.config.A2A.Issuers {
		issuer := &s.config.A2A.Issuers[i]
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
	options.Documents = tokenDocuments{peers: keyDocuments{s.client}, written: written, operator: s.client}
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
func (s *Server) issuerCards() []a2a.IssuerCard {
	cards := make([]a2a.IssuerCard, 0, len(s.config.A2A.Issuers))
	for i := range s.config.A2A.Issuers {
		cards = append(cards, a2a.IssuerCard{Name: s.config.A2A.Issuers[i].Issuer, Discovery: s.config.A2A.Issuers[i].Discovery})
	}
	return cards
}

// takesPeer reports whether what a peer signs for itself is worth a look at its keys: it is not kept out, and the agent's
// rules would let it in when it is who it says, or the operator trusts its domain.
func (s *Server) takesPeer(agent string, peer identity.Address) bool {
	entry, known := s.registry.Lookup(agent)
	if !known || s.lists.Address(peer.String()).Refused() || s.lists.Host(peer.Domain).Refused() {
		return false
	}
	proven := identity.Transport(identity.TransportProof{
		Domain: s.config.Domain, Subject: peer.Acct(), Method: identity.MethodA2AJWT, Assurance: identity.AssuranceAgent,
		Recipient: entry.Profile.Address, IssuedAt: time.Now(),
	})
	return entry.Settings.Access.Decide(identity.PurposeMessage, peer.String(), []identity.Evidence{proven}).Allowed || s.trustsDomain(peer.Domain)
}

// trustsDomain reports whether an entry of [[trust]] in force names a domain or its did:web.
func (s *Server) trustsDomain(domain string) bool {
	now := time.Now()
	return slices.ContainsFunc(s.config.Trust, func(entry config.Trust) bool {
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
func (s *Server) assert(ctx context.Context, agent, audience string) (string, error) {
	entry, known := s.registry.Lookup(agent)
	if !known {
		return "", fmt.Errorf("no agent %q", agent)
	}
	key, err := s.keyring.Signing(ctx)
	if err != nil {
		return "", err
	}
	return webtoken.Assert(key, entry.Profile.Address, audience, time.Now())
}

package a2a

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

var credentials = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_credentials_total",
	Help: "Tokens checked at the A2A edge, by outcome (valid, missing, unknown, revoked, other_agent, refused, error).",
}, []string{"outcome"})

// Verifier checks signed tokens; *webtoken.Verifier is one. Its errors are *fault.Fault.
type Verifier interface {
	Verify(ctx context.Context, shown webtoken.Presented) (webtoken.Claims, error)
}

// caller is who a request is from, and for what its token is good.
type caller struct {
	sender   normalized.Sender
	scopes   []string
	unscoped bool // every method
	crowd    string
}

// may reports whether the token is good for a scope.
func (c *caller) may(scope string) bool { return c.unscoped || slices.Contains(c.scopes, scope) }

// verify finds the token of a request and says whom it proves. Faults: Unauthenticated for a missing, unknown or revoked
// token, Forbidden for one that is limited to another agent.
func (a *Adapter) verify(r *http.Request, agent exchange.AgentProfile, address string) (caller, error) {
	found, outcome, err := a.checkToken(r, agent, address)
	credentials.WithLabelValues(outcome).Inc()
	return found, err
}

func (a *Adapter) checkToken(r *http.Request, agent exchange.AgentProfile, address string) (caller, string, error) {
	scheme, shown := authorization(r)
	if a.options.Verifier != nil && webtoken.Signed(shown) {
		return a.checkSigned(r, agent, address, a.audiences(agent))
	}
	if !strings.EqualFold(scheme, "Bearer") || !bearer.WellFormed(shown) {
		return caller{}, "missing", fault.New(fault.Unauthenticated, "a bearer token of this server is needed")
	}
	token, found, err := a.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		return caller{}, "error", err
	case !found:
		return caller{}, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case !token.RevokedAt.IsZero():
		return caller{}, "revoked", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Scope != exchange.TokenPeer: // an operator's token opens the operator API and no agent
		return caller{}, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Agent != "" && !strings.EqualFold(token.Agent, agent.Name):
		return caller{}, "other_agent", fault.New(fault.Forbidden, "the bearer token is not for this agent")
	}
	return caller{sender: bearer.Sender(token, agent, a.options.Domain), unscoped: true, crowd: "token\n" + token.ID}, "valid", nil
}

// authorization reads the one header of that name: "Bearer x" or "DPoP x" (RFC 6750, section 2.1; RFC 9449, section 7.1).
func authorization(r *http.Request) (scheme, token string) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 || len(values[0]) > webtoken.MaxTokenBytes+16 {
		return "", ""
	}
	scheme, token, _ = strings.Cut(values[0], " ")
	return scheme, strings.TrimSpace(token)
}

// checkSigned takes a token of a configured issuer, or what a peer signed for itself.
func (a *Adapter) checkSigned(r *http.Request, agent exchange.AgentProfile, address string, audiences []string) (caller, string, error) {
	scheme, shown := authorization(r)
	presented := webtoken.Presented{
		Scheme: scheme, Token: shown, Proofs: r.Header.Values("DPoP"), Method: r.Method, URL: address,
		Source: admission.SourceOf(httpserver.ClientIP(r)), Audiences: audiences, Foreign: a.namesAgent,
	}
	if a.options.Peers != nil {
		presented.Peer = func(peer identity.Address) bool { return a.options.Peers(agent.Name, peer) }
	}
	claims, err := a.options.Verifier.Verify(r.Context(), presented)
	switch {
	case fault.Is(err, fault.Unauthenticated):
		return caller{}, "refused", err
	case err != nil:
		return caller{}, "error", err
	}
	sender := a.issuedSender(claims, agent)
	if found := sender.Identities[0].CheckShape(); found != nil {
		return caller{}, "refused", fault.Wrap(fault.Unauthenticated, "the token is not valid here: its names cannot be taken", errors.Join(webtoken.ErrToken, found))
	}
	return caller{sender: sender, scopes: claims.Scopes, unscoped: claims.Unscoped, crowd: crowdOf(sender.Principal(), claims)}, "valid", nil
}

// audiences are the names of an agent that a token may be made out to.
func (a *Adapter) audiences(agent exchange.AgentProfile) []string {
	endpoint := a.endpoint(agent)
	return []string{
		endpoint, endpoint + "/", endpoint + "/rest", endpoint + "/v1", agent.Address, strings.TrimPrefix(agent.Address, "@"),
		a.cardURL(agent), endpoint + "/.well-known/agent-card.json", endpoint + "/.well-known/agent.json",
	}
}

// namesAgent reports whether a name is one of an agent here: configured for all, it would open every agent with the token of
// one. The agent's own names are asked before.
func (a *Adapter) namesAgent(audience string) bool {
	return strings.HasPrefix(audience, a.base+"/a2a/") || strings.HasPrefix(audience, a.base+"/v1/agent/") || strings.HasPrefix(audience, a.base+"/.well-known/") || strings.HasPrefix(audience, "@")
}

// issuedSender is what a signed token proves. A peer is its address; the subject of a configured issuer stands behind the
// issuer and "#", which no issuer has in it, so that no two issuers can name one principal.
func (a *Adapter) issuedSender(claims webtoken.Claims, agent exchange.AgentProfile) normalized.Sender {
	evidence := identity.Transport(identity.TransportProof{
		Domain: a.options.Domain, Subject: claims.Subject, Method: claims.Method, Assurance: identity.AssuranceAgent,
		Recipient: agent.Address, KeyID: claims.KeyID, IssuedAt: identity.Now().Time,
	})
	evidence.Source = &identity.Source{Transport: normalized.ViaA2A, Connector: claims.Issuer}
	sender := normalized.Sender{
		Address: claims.Peer.String(), DisplayName: claims.Peer.Local, AuthMethod: normalized.AuthA2AJWT, Verified: true, KeyID: claims.KeyID,
	}
	if claims.Peer == (identity.Address{}) {
		evidence.Subject = claims.Issuer + "#" + claims.Subject
		evidence.Proof = identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: a.options.Domain, TokenID: claims.TokenID}
		sender.Address, sender.DisplayName = issuedAddress(claims), claims.Subject
		if claims.Method != identity.MethodA2AJWT {
			sender.AuthMethod = normalized.AuthA2AOAuth
		}
	}
	sender.Identities = []identity.Evidence{evidence}
	return sender
}

// issuedAddress is subject@host of the issuer where that can stand in an address, else token@host: a name to show, which
// the evidence does not vouch for.
func issuedAddress(claims webtoken.Claims) string {
	host := hostOf(claims.Issuer)
	for _, local := range []string{claims.Subject, claims.ClientID} {
		if address, err := identity.ParseAddress(local + "@" + host); err == nil && address.Local == local {
			return address.String()
		}
	}
	return "@token@" + host
}

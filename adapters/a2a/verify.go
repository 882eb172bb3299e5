package a2a

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/normalized"
)

var credentials = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_credentials_total",
	Help: "Bearer tokens checked at the A2A edge, by outcome (valid, missing, unknown, revoked, other_agent, error).",
}, []string{"outcome"})

// verify finds the token of a request and says whether it opens the agent. Unauthenticated for a missing, unknown or
// revoked token, Forbidden for one that is limited to another agent.
func (a *Adapter) verify(r *http.Request, agent exchange.AgentProfile) (exchange.Token, error) {
	token, outcome, err := a.checkToken(r, agent)
	credentials.WithLabelValues(outcome).Inc()
	return token, err
}

func (a *Adapter) checkToken(r *http.Request, agent exchange.AgentProfile) (exchange.Token, string, error) {
	shown := bearer.Of(r)
	if !bearer.WellFormed(shown) {
		return exchange.Token{}, "missing", fault.New(fault.Unauthenticated, "a bearer token of this server is needed")
	}
	token, found, err := a.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		return token, "error", err
	case !found:
		return token, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case !token.RevokedAt.IsZero():
		return token, "revoked", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Scope != exchange.TokenPeer: // an operator's token opens the operator API and no agent
		return token, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Agent != "" && !strings.EqualFold(token.Agent, agent.Name):
		return token, "other_agent", fault.New(fault.Forbidden, "the bearer token is not for this agent")
	}
	return token, "valid", nil
}

// sender is what the token proves: evidence made inside our boundary, with the token's id and never the token.
func (a *Adapter) sender(token exchange.Token, agent exchange.AgentProfile) normalized.Sender {
	return normalized.Sender{
		Address: peerAddress(token, a.options.Domain), DisplayName: token.Name,
		AuthMethod: normalized.AuthA2AOAuth, Verified: true, KeyID: token.ID,
		Identities: []identity.Evidence{{
			Subject: "token:" + token.ID, Issuer: a.options.Domain,
			Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent,
			Audience: identity.Audience{agent.Address}, IssuedAt: identity.Now(),
			Source: &identity.Source{Transport: normalized.ViaA2A},
			Proof:  identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: a.options.Domain, TokenID: token.ID},
		}},
	}
}

// peerAddress is @name@domain; a name that cannot stand in an address is replaced by the token's id.
func peerAddress(token exchange.Token, domain string) string {
	for _, local := range []string{token.Name, "token-" + token.ID} {
		if address, err := identity.ParseAddress(local + "@" + domain); err == nil && address.Local == local {
			return address.String()
		}
	}
	return "@token@" + domain
}

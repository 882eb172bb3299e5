package a2a

import (
	"context"
	"net/url"

	"inbox/exchange"
	"inbox/identity"
)

// methodAgent is the method of evidence about one of our agents that calls another.
const methodAgent = "urn:mentionable:auth:a2a-agent:v0.1"

// maxVouched leaves room for the proof of the transport on the other side.
const maxVouched = identity.MaxEvidence - 2

// vouch signs who calls and on whose behalf, for the agent that is called and nobody else. The agent alone comes first: a
// receiver that does not let us delegate drops every piece with on_behalf_of whole. Then the agent for its user, and
// each identity of the user that we verified ourselves; what others vouched for is not ours to sign.
func (c *Caller) vouch(ctx context.Context, d exchange.Dispatch, to string) ([]identity.Evidence, error) {
	agent := identity.Evidence{
		Subject: c.agentSubject(d.Agent), Method: methodAgent, Assurance: identity.AssuranceAgent,
		Audience: identity.Audience{to},
		Source:   &identity.Source{Transport: "a2a", Connector: c.issuer},
	}
	pieces := []identity.Evidence{agent}
	if len(d.Sender.Identities) > 0 {
		agent.OnBehalfOf = []string{d.Sender.Identities[0].Subject}
		pieces = append(pieces, agent)
	}
	for _, known := range d.Sender.Identities {
		if c.verifiedHere(known) && len(pieces) < maxVouched {
			pieces = append(pieces, identity.Evidence{
				Subject: known.Subject, Method: known.Method, Assurance: known.Assurance, Audience: agent.Audience, Source: agent.Source,
			})
		}
	}
	for i := range pieces {
		signed, err := c.options.Signer.Sign(ctx, pieces[i])
		if err != nil {
			return nil, err
		}
		pieces[i] = signed
	}
	return pieces, nil
}

// agentSubject is the address of the agent's card.
func (c *Caller) agentSubject(name string) string {
	return "https://" + c.issuer + "/.well-known/agent-card/" + url.PathEscape(name)
}

// verifiedHere reports whether a proof was checked inside our boundary.
func (c *Caller) verifiedHere(e identity.Evidence) bool {
	issuer, err := identity.CanonicalIssuer(e.Issuer)
	return err == nil && issuer == c.issuer && (e.Proof.Type == identity.ProofTransport || e.Proof.Type == identity.ProofBearerToken)
}

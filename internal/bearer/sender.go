package bearer

import (
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// Sender is what a token proves to an agent, on whatever surface it is shown: evidence made inside our boundary, with the
// token's id and never the token. The holder is one principal on all of them.
func Sender(token exchange.Token, agent exchange.AgentProfile, domain string) normalized.Sender {
	return normalized.Sender{
		Address: identity.Stated(Address(token, domain)), DisplayName: token.Name,
		AuthMethod: normalized.AuthA2AOAuth, Verified: true, KeyID: token.ID,
		Identities: []identity.Evidence{{
			Subject: "token:" + token.ID, Issuer: domain,
			Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent,
			Audience: identity.Audience{agent.Address}, IssuedAt: identity.Now(),
			Source: &identity.Source{Transport: normalized.ViaA2A},
			Proof:  identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: domain, Addressed: identity.AddressedRequest, TokenID: token.ID},
		}},
	}
}

// Address is @name@domain; a name that cannot stand in an address is replaced by the token's id.
func Address(token exchange.Token, domain string) string {
	for _, local := range []string{token.Name, "token-" + token.ID} {
		if address, err := identity.ParseAddress(local + "@" + domain); err == nil && address.Local == local {
			return address.String()
		}
	}
	return "@token@" + domain
}

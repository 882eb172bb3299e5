package agents_test

import (
	"testing"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
)

func provenBy(method string, proof identity.Proof) normalized.Sender {
	evidence := identity.Transport(identity.TransportProof{
		Domain: "inbox.example", Subject: "mailto:ann@social.example", Method: method, Assurance: identity.AssuranceDomain,
		Recipient: "@helper@inbox.example", Addressed: identity.AddressedRequest,
	})
	if proof.Type != "" {
		evidence.Proof = proof
	}
	return normalized.Sender{Address: identity.Stated("@ann@social.example"), Identities: []identity.Evidence{evidence}, Verified: true}
}

// TestIsApprover: a person counts as an approver by what this server saw itself, by a method that the operator named. A token or an
// attestation that names the approver speaks for a program.
func TestIsApprover(t *testing.T) {
	settings := agents.Settings{Approvers: []string{"ann@social.example"}}
	mail := provenBy(identity.MethodEmailDMARC, identity.Proof{})
	if !settings.IsApprover(mail) {
		t.Error("the mail of an approver does not count")
	}

	onlyKey := agents.Settings{Approvers: settings.Approvers, ApproverMethods: map[string][]string{"ann@social.example": {identity.MethodEmailDKIM}}}
	for name, test := range map[string]struct {
		settings agents.Settings
		sender   normalized.Sender
	}{
		"a token":          {settings, provenBy(identity.MethodEmailDMARC, identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: "inbox.example"})},
		"an attestation":   {settings, provenBy(identity.MethodEmailDMARC, identity.Proof{Type: identity.ProofSignedAttestation})},
		"another method":   {onlyKey, mail},
		"a name alone":     {settings, normalized.Sender{Address: identity.Stated("@ann@social.example")}},
		"another person":   {agents.Settings{Approvers: []string{"bob@social.example"}}, mail},
		"nobody may do it": {agents.Settings{}, mail},
	} {
		if test.settings.IsApprover(test.sender) {
			t.Errorf("%s counts as an approver", name)
		}
	}
}

// TestCarrierIsKeptOut: a rule that keeps an address out also keeps out what the caller of that address brings.
func TestCarrierIsKeptOut(t *testing.T) {
	sender := provenBy(identity.MethodEmailDMARC, identity.Proof{})
	sender.CarriedBy = identity.Stated("@relay@bad.example")
	settings := agents.Settings{Access: identity.AccessPolicy{
		Access: identity.AccessPublic, Rules: []identity.Rule{{Effect: identity.EffectDeny, Address: "@*@bad.example"}},
	}}
	if decision := settings.Decide(identity.PurposeMessage, sender); decision.Allowed || decision.Code != identity.CodeAccessDenied {
		t.Errorf("%+v", decision)
	}
	sender.CarriedBy = identity.Stated("@relay@good.example")
	if decision := settings.Decide(identity.PurposeMessage, sender); !decision.Allowed {
		t.Errorf("%+v", decision)
	}
}

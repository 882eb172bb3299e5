package normalized

import (
	"reflect"
	"testing"

	"inbox/identity"
)

func TestWhoSpeaks(t *testing.T) {
	token := identity.Evidence{Subject: "token:1", Issuer: "own.test", Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent, Proof: identity.Proof{Type: identity.ProofBearerToken}}
	signed := identity.Evidence{Subject: "acct:a@peer.test", Issuer: "own.test", Method: identity.MethodA2AJWT, Assurance: identity.AssuranceAgent, Proof: identity.Proof{Type: identity.ProofTransport}}
	connector := identity.Evidence{Subject: "connector:slack/U1", Issuer: "own.test", Method: "urn:connector", Proof: identity.Proof{Type: identity.ProofTransport}}
	mail := identity.Evidence{Subject: "mailto:ann@a.test", Issuer: "own.test", Method: identity.MethodEmailDMARC, Proof: identity.Proof{Type: identity.ProofTransport}}
	attested := func(issuer, subject, assurance string) identity.Evidence {
		return identity.Evidence{Subject: subject, Issuer: issuer, Assurance: assurance, Proof: identity.Proof{Type: identity.ProofSignedAttestation}}
	}
	ann, eve := attested("a.test", "slack:T/ann", "platform"), attested("a.test", "slack:T/eve", "platform")
	agent := attested("peer.test", "https://peer.test/agents/a", identity.AssuranceAgent)
	agent.OnBehalfOf = []string{"slack:T/ann"}

	for name, c := range map[string]struct {
		carriedBy          string
		list               []identity.Evidence
		principal, carrier string
	}{
		"nobody":                             {"", nil, "unverified @x@y.test", "unverified @x@y.test"},
		"a token":                            {"", []identity.Evidence{token}, "own.test token:1", "own.test token:1"},
		"a mail":                             {"", []identity.Evidence{mail, ann}, "own.test mailto:ann@a.test", "own.test mailto:ann@a.test"},
		"a bridge":                           {"", []identity.Evidence{connector, ann}, "own.test connector:slack/U1", "own.test connector:slack/U1"},
		"a person by a token":                {"", []identity.Evidence{token, ann}, "a.test slack:T/ann", "own.test token:1"},
		"attested twice":                     {"", []identity.Evidence{token, ann, ann}, "a.test slack:T/ann", "own.test token:1"},
		"attested by two":                    {"", []identity.Evidence{token, attested("z.test", "slack:T/ann", "platform"), ann}, "a.test slack:T/ann", "own.test token:1"},
		"a person by a connector that signs": {"", []identity.Evidence{signed, ann}, "a.test slack:T/ann", "own.test acct:a@peer.test"},
		"itself":                             {"", []identity.Evidence{signed, attested("peer.test", "acct:a@peer.test", "address")}, "own.test acct:a@peer.test", "own.test acct:a@peer.test"},
		"two people":                         {"", []identity.Evidence{token, ann, eve}, "unverified @x@y.test", "own.test token:1"},
		"somebody without a proof":           {"@c@own.test", []identity.Evidence{token}, "unverified @x@y.test", "own.test token:1"},
		"an agent for a person":              {"", []identity.Evidence{token, agent, ann}, "peer.test https://peer.test/agents/a", "own.test token:1"},
		"an agent that signs, for a person":  {"", []identity.Evidence{signed, agent, ann}, "own.test acct:a@peer.test", "own.test acct:a@peer.test"},
	} {
		sender := Sender{Address: identity.Stated("@x@y.test"), Identities: c.list, CarriedBy: identity.Stated(c.carriedBy)}
		if sender.Principal() != c.principal || sender.Carrier() != c.carrier || sender.Carried() != (c.principal != c.carrier) {
			t.Errorf("%s: %s speaks, %s brought it", name, sender.Principal(), sender.Carrier())
		}
	}
}

// TestAddressesOfSendersAreNoKeys: what a sender states can be neither compared nor the key of a map.
func TestAddressesOfSendersAreNoKeys(t *testing.T) {
	for _, name := range []string{"Address", "CarriedBy"} {
		field, found := reflect.TypeFor[Sender]().FieldByName(name)
		if !found || field.Type.Comparable() {
			t.Errorf("%s can be compared", name)
		}
	}
}

package pipeline_test

import (
	"slices"
	"testing"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// brought is a message that a connector brings with its token: about the person whom an issuer attests, or about one without a proof.
func brought(person, id, thread string, proven bool) exchange.Inbound {
	in := from(person, id, thread)
	sender := &in.Message.Sender
	sender.AuthMethod, sender.CarriedBy = normalized.AuthA2AOAuth, identity.Stated("@connector@inbox.test")
	sender.Identities = []identity.Evidence{{
		Subject: "token:1", Issuer: "inbox.test", Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent,
		Audience: identity.Audience{in.Message.Recipient}, IssuedAt: identity.Now(),
		Proof: identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: "inbox.test", Addressed: identity.AddressedRequest, TokenID: "1"},
	}}
	if proven {
		end := identity.At(time.Now().Add(time.Minute))
		sender.Identities = append(sender.Identities, identity.Evidence{
			ID: id, Subject: "slack:T1/" + person, Issuer: "connector.test", Method: "urn:mentionable:auth:platform-mention:v0.1",
			Assurance: identity.AssurancePlatform, Audience: identity.Audience{in.Message.Recipient}, IssuedAt: identity.Now(), ExpiresAt: &end,
			Proof: identity.Proof{Type: identity.ProofSignedAttestation, Alg: "EdDSA", Kid: "k", Value: "v"},
		})
	}
	return in
}

func TestHistoryOfThePeopleOfAConnector(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{HistoryScope: agents.HistoryPerson, Unverified: agents.UnverifiedAnswer})
		expect := func(want string, in exchange.Inbound) {
			t.Helper()
			if got := w.ask(t, e, in); got != want {
				t.Errorf("%s saw %q, want %q", in.Message.ID, got, want)
			}
		}

		expect("", brought("ann", "a1", "one", true))
		expect("", brought("eve", "e1", "two", true))
		expect("hello a1 | re: hello a1", brought("ann", "a2", "three", true))
		expect("", brought("ann", "u1", "four", false))
		expect("", brought("ann", "u2", "five", false))
		expect("hello e1 | re: hello e1", brought("eve", "e2", "six", true))

		agent := brought("ann", "agent", "seven", true) // an agent that calls for ann is not ann
		agent.FromAgent, agent.Message.RecipientCapabilities.AgentChain = true, &normalized.AgentChain{Hop: 1, MaxHops: 4}
		expect("", agent)
		expect("hello a1 | re: hello a1 | hello a2 | re: hello a2", brought("ann", "a3", "eight", true))
	})
}

func TestTurnsNameTheirCarrier(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{Unverified: agents.UnverifiedAnswer})
		const token = "inbox.test token:1"
		for person, want := range map[string]string{"ann": "connector.test slack:T1/ann", "eve": "connector.test slack:T1/eve"} {
			in := brought(person, "same", "thread of "+person, true)
			in.Reference = "task of " + person
			first := e.receive(t, in)
			if again := e.receive(t, in); again.New || again.TurnID != first.TurnID {
				t.Errorf("the repeat is another message: %+v", again)
			}
			if turn := e.settled(t, first.TurnID); turn.Principal != want || turn.Carrier != token {
				t.Errorf("%s speaks, %s brought it", turn.Principal, turn.Carrier)
			}
		}

		for owner, want := range map[string]int{token: 2, "connector.test slack:T1/ann": 0, "inbox.test token:2": 0} {
			tasks, err := e.store.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", Carrier: owner, Latest: true, Limit: 9})
			if err != nil || len(tasks) != want {
				t.Errorf("%s has %d tasks, %v; want %d", owner, len(tasks), err, want)
			}
		}
	})
}

func TestRulesKeepOutWhatACarrierBrings(t *testing.T) {
	w := &witness{seen: map[string]string{}}
	e := start(t, "sqlite", w.agent, agents.Settings{Unverified: agents.UnverifiedAnswer, Access: identity.AccessPolicy{
		Access: identity.AccessPublic, Rules: []identity.Rule{{Effect: identity.EffectDeny, Address: "@connector@inbox.test"}},
	}})
	if _, err := e.pipeline.Receive(t.Context(), brought("ann", "a1", "one", true)); !fault.Is(err, fault.Forbidden) {
		t.Errorf("got %v", err)
	}

	rows, err := e.store.AuditRecords(t.Context(), exchange.AuditFilter{Limit: 9})
	if err != nil || !slices.ContainsFunc(rows, func(row exchange.AuditRecord) bool {
		return row.Principal == "connector.test slack:T1/ann" && row.Code == identity.CodeAccessDenied &&
			row.Detail == "rule 1 keeps the sender out of message; brought by inbox.test token:1"
	}) {
		t.Errorf("%+v, %v", rows, err)
	}
}

package demand

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// answering is a message that resolves the demand of a parked turn.
func answering(parked exchange.TurnRecord, token, kind, outcome string) exchange.Inbound {
	message := parked.Message
	message.ID = "answer-" + parked.ID
	return exchange.Inbound{
		Message: message, Continues: parked.ID,
		Settlement: &exchange.Settlement{Resolution: &policypart.Resolution{
			Kind: kind, InReplyToState: token, Outcome: outcome, ResolvedAt: identity.Now(),
		}},
	}
}

func envelope(token, subject string, change func(*identity.Evidence, map[string]any)) identity.Evidence {
	e := evidence("mailto:" + subject)
	e.ID = "jti-1"
	e.Proof = identity.Proof{Type: identity.ProofSignedAttestation, Alg: "EdDSA", Kid: "k", Value: "v"}
	claims := map[string]any{"in_reply_to_state": token, "outcome": "granted"}
	if change != nil {
		change(&e, claims)
	}
	e.Claims, _ = json.Marshal(claims)
	return e
}

func TestOfferGrantsWithTheAskersIdentity(t *testing.T) {
	b := setup(t)
	parked := turnOf("1", "alice")
	issuance, token := b.park(t, parked, consent())
	ending, err := b.Offer(t.Context(), answering(parked, token, policypart.ConsentRequired, "granted"), parked)
	if err != nil || !ending.Resume || ending.Issuance.ID != issuance.ID || ending.Issuance.Resolution.Outcome != "granted" ||
		ending.Issuance.Resolution.InReplyToState != "" || !slices.Equal(ending.From, []string{policypart.StatusIssued}) {
		t.Fatalf("%+v %v", ending, err)
	}
	if len(b.rows.endings) != 0 {
		t.Error("an offer is stored by its caller")
	}
	ending, err = b.Offer(t.Context(), answering(parked, token, policypart.ConsentRequired, "denied"), exchange.TurnRecord{})
	if err != nil || ending.Resume || ending.Response.InReplyTo != "answer-1" || ending.Issuance.Status != policypart.StatusDenied {
		t.Fatalf("%+v %v", ending, err)
	}
}

// TestAgentGetsBackWhatItIssued: the state and the data of its own demand, and nothing of it passes for what the server found out.
func TestAgentGetsBackWhatItIssued(t *testing.T) {
	b := setup(t)
	part := consent()
	part.Data = map[string]json.RawMessage{
		StateKey: json.RawMessage(`"my own state"`), "com.example.order": json.RawMessage(`{"number":7}`), IdentityKey: json.RawMessage(`{"subject":"mallory"}`),
	}
	parked := turnOf("1", "alice")
	issuance, token := b.park(t, parked, part)
	presented, err := json.Marshal(b.Present(issuance.Part))
	if err != nil || strings.Contains(string(presented), "my own state") || !strings.Contains(string(presented), token) {
		t.Errorf("the asker sees %s, %v; want the state of the server and not that of the agent", presented, err)
	}

	ending, err := b.Offer(t.Context(), answering(parked, token, policypart.ConsentRequired, "granted"), parked)
	if err != nil {
		t.Fatal(err)
	}
	resolution := ending.Issuance.Resolution
	if resolution.InReplyToState != "my own state" || string(resolution.Data["com.example.order"]) != `{"number":7}` || resolution.Data[IdentityKey] != nil {
		t.Errorf("the agent gets back %+v", resolution)
	}
	if _, err := b.Offer(t.Context(), answering(parked, "my own state", policypart.ConsentRequired, "granted"), parked); err == nil {
		t.Error("the agent's own state opens its demand")
	}

	for _, wrong := range []string{`7`, `{"a":1}`, `"` + strings.Repeat("x", maxOwnState+1) + `"`} {
		part.Data[StateKey] = json.RawMessage(wrong)
		if _, err := b.Issue(turnOf("2", "alice"), part); err == nil {
			t.Errorf("the state %.20s is taken", wrong)
		}
	}
}

func TestEveryRefusalOfAnOfferHasItsAuditRow(t *testing.T) {
	scoped := func(scopes ...string) func(*identity.Evidence, map[string]any) {
		return func(_ *identity.Evidence, c map[string]any) { c["scopes"] = scopes }
	}
	for name, c := range map[string]struct {
		code   string
		part   policypart.Part
		change func(b *bench, in *exchange.Inbound, parked *exchange.TurnRecord, token string)
	}{
		"unknown state": {policypart.CodeUnknown, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.InReplyToState = "guess"
		}},
		"other agent": {policypart.CodeAgent, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Message.Recipient = "@b@agents.test"
		}},
		"other thread": {policypart.CodeThread, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Message.ThreadID = "elsewhere"
		}},
		"other task": {policypart.CodeThread, consent(), func(_ *bench, _ *exchange.Inbound, parked *exchange.TurnRecord, _ string) {
			parked.ID = "99"
		}},
		"other person": {policypart.CodePrincipal, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Message.Sender = turnOf("1", "bob").Message.Sender
		}},
		"the same name, unverified": {policypart.CodePrincipal, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Message.Sender.Identities = nil
		}},
		"after expiry": {policypart.CodeExpired, consent(), func(b *bench, _ *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			b.clock = b.clock.Add(48 * time.Hour)
		}},
		"used": {policypart.CodeUsed, consent(), func(b *bench, _ *exchange.Inbound, _ *exchange.TurnRecord, token string) {
			if _, err := b.Decide(t.Context(), token, true); err != nil {
				t.Error(err)
			}
		}},
		"other kind": {policypart.CodeTerms, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.Kind = policypart.Unauthorized
		}},
		"wider scopes": {policypart.CodeTerms, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, token string) {
			in.Settlement.Envelopes = []identity.Evidence{envelope(token, "alice", scoped("mail.read", "mail.send"))}
		}},
		"login by word": {policypart.CodeProof, login(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.Kind = policypart.Unauthorized
		}},
		"payment by word": {policypart.CodeProof, invoice(facilitatortest.Requirements("0xshop", "1")), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.Kind, in.Settlement.Resolution.Outcome = policypart.PaymentRequired, "paid"
		}},
		"payment for something else": {policypart.CodeTerms, invoice(facilitatortest.Requirements("0xshop", "1")), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement = &exchange.Settlement{Payment: facilitatortest.NewWallet().Pay(facilitatortest.Requirements("0xthief", "1"))}
		}},
		"payment for consent": {policypart.CodeTerms, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement = &exchange.Settlement{Payment: []byte("{}")}
		}},
		"payment for no demand": {policypart.CodeUnknown, consent(), func(_ *bench, in *exchange.Inbound, parked *exchange.TurnRecord, _ string) {
			in.Settlement = &exchange.Settlement{Payment: []byte("{}")}
			*parked = exchange.TurnRecord{}
		}},
		"paid consent": {policypart.CodeProof, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.Outcome = "paid"
		}},
		"expired by word": {policypart.CodeProof, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, _ string) {
			in.Settlement.Resolution.Outcome = "expired"
		}},
		"envelope about somebody else": {policypart.CodePrincipal, consent(), func(_ *bench, in *exchange.Inbound, _ *exchange.TurnRecord, token string) {
			in.Settlement.Envelopes = []identity.Evidence{envelope(token, "bob", nil)}
		}},
	} {
		b := setup(t)
		parked := turnOf("1", "alice")
		_, token := b.park(t, parked, c.part)
		in := answering(parked, token, c.part.Kind, "granted")
		c.change(b, &in, &parked, token)
		ending, err := b.Offer(t.Context(), in, parked)
		if refusedBy(err) != c.code || !fault.Is(err, fault.Forbidden) || fault.Of(err).Public == "" {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if len(ending.Audit) != 1 || ending.Audit[0].Code != c.code || ending.Audit[0].Principal != in.Message.Sender.Principal() || ending.Issuance.ID != "" {
			t.Errorf("%s: %+v", name, ending)
		}
	}
}

func TestConnectorEnvelopeProvesALogin(t *testing.T) {
	b := setup(t)
	parked := turnOf("1", "alice")
	_, token := b.park(t, parked, login())
	in := answering(parked, token, policypart.Unauthorized, "granted")
	in.Message.Sender.Identities = []identity.Evidence{evidence("token:connector")}
	in.Settlement.Envelopes = []identity.Evidence{
		evidence("mailto:alice"), // no envelope: a transport proof
		envelope("another", "alice", nil),
		envelope(token, "alice", func(_ *identity.Evidence, c map[string]any) { c["receipt"] = "grant-1" }),
	}
	ending, err := b.Offer(t.Context(), in, parked)
	if err != nil || !ending.Resume || ending.Issuance.Resolution.Receipt != "grant-1" || ending.Issuance.Resolution.ResolvedBy.Subject != "mailto:alice" {
		t.Fatalf("%+v %v", ending, err)
	}
	in.Settlement.Envelopes = []identity.Evidence{envelope(token, "alice", func(e *identity.Evidence, _ map[string]any) { e.ID = "" })}
	if _, err := b.Offer(t.Context(), in, parked); refusedBy(err) != policypart.CodePrincipal {
		t.Errorf("an envelope that could be replayed: %v", err)
	}
}

func TestPaymentByMessageIsClaimedAndVerified(t *testing.T) {
	b := setup(t)
	accept := facilitatortest.Requirements2("0xshop", "5")
	parked := turnOf("1", "alice")
	issuance, _ := b.park(t, parked, invoice(accept))
	in := answering(parked, "", "", "")
	in.Settlement = &exchange.Settlement{Payment: facilitatortest.NewWallet().Pay(accept)}
	ending, err := b.Offer(t.Context(), in, parked)
	if err != nil || !ending.Resume || !slices.Equal(ending.From, []string{policypart.StatusClaimed}) || ending.Issuance.Resolution.Outcome != "paid" {
		t.Fatalf("%+v %v", ending, err)
	}
	if b.row(issuance.ID).Status != policypart.StatusClaimed {
		t.Error("not claimed")
	}
	if err := b.rows.Settle(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	turn := b.resumed(turnOf("2", "alice"), issuance.ID) // the message's own turn takes the parked one's place
	turn.ThreadID = parked.ThreadID
	got, err := b.Capture(t.Context(), turn, normalized.Response{Parts: []normalized.Part{normalized.Text("done")}})
	if err != nil || got.Metadata[PaymentStatusKey] == "" || len(b.facilitator.Settled()) != 1 {
		t.Errorf("%+v %v", got, err)
	}

	issuance, _ = b.park(t, parked, invoice(accept))
	in.Settlement.Payment = facilitatortest.Forge(in.Settlement.Payment)
	ending, err = b.Offer(t.Context(), in, parked)
	if refusedBy(err) != policypart.CodeProof || len(ending.Audit) != 1 || b.row(issuance.ID).Status != policypart.StatusDenied || b.rows.lastEnding(t).Response == nil {
		t.Errorf("%+v %v", ending, err)
	}
}

func TestAnonymousPeerMayAnswerItsOwnTask(t *testing.T) {
	b := setup(t)
	parked := turnOf("1", "alice")
	parked.Message.Sender.Identities = nil
	_, token := b.park(t, parked, consent())
	in := answering(parked, token, policypart.ConsentRequired, "granted")
	if ending, err := b.Offer(t.Context(), in, parked); err != nil || ending.Issuance.Resolution.ResolvedBy != nil {
		t.Errorf("%+v %v", ending, err)
	}
	in.Message.Sender.Identities = []identity.Evidence{evidence("mailto:bob")}
	if _, err := b.Offer(t.Context(), in, parked); refusedBy(err) != policypart.CodePrincipal {
		t.Error(err)
	}
}

func TestOfferWithoutADemandNamed(t *testing.T) {
	b := setup(t)
	for _, settlement := range []*exchange.Settlement{nil, {}, {Resolution: &policypart.Resolution{Outcome: "granted"}}} {
		if _, err := b.Offer(t.Context(), exchange.Inbound{Settlement: settlement}, exchange.TurnRecord{}); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v", settlement, err)
		}
	}
}

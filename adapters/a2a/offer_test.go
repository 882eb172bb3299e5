package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// recorder is a validator that accepts pieces that are objects with trusted true.
type recorder struct {
	mu      sync.Mutex
	offered []identity.Offered
	to      identity.Recipient
}

func (b *recorder) Validate(_ context.Context, offered identity.Offered, to identity.Recipient) identity.Validation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered, b.to = append(b.offered, offered), to
	var validation identity.Validation
	for _, piece := range offered.Evidence {
		var read struct {
			Trusted                    bool
			Subject, Assurance, Issuer string
		}
		_ = json.Unmarshal(piece, &read)
		if !read.Trusted {
			validation.Rejected = append(validation.Rejected, identity.Rejection{Code: identity.CodeExpired, Issuer: read.Issuer, Subject: read.Subject})
			continue
		}
		at := identity.Now()
		validation.Evidence = append(validation.Evidence, identity.Evidence{
			ID: "1", Subject: read.Subject, Issuer: "a.example", Method: "urn:mentionable:auth:x:v0.1", Assurance: read.Assurance,
			Audience: identity.Audience{to.Address}, IssuedAt: at, ExpiresAt: &at,
			Proof: identity.Proof{Type: identity.ProofSignedAttestation, Alg: "EdDSA", Kid: "k", Value: "v"},
		})
	}
	for range offered.Credentials {
		validation.Credentials = append(validation.Credentials, identity.Credential{Issuer: "did:web:a.example", Subject: "slack:T1/U1", Claims: json.RawMessage(`{"name":"Ada"}`)})
	}
	return validation
}

func withMetadata(id, metadata string) string {
	return `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hi"}],"metadata":` + metadata + `}}`
}

func trusted(subject, assurance string) string {
	return `{"trusted":true,"subject":"` + subject + `","assurance":"` + assurance + `","proof":{"value":"topsecret"}}`
}

// used is evidence that passed before.
func used(subject string) string {
	return `{"issuer":"a.example","subject":"` + subject + `","assurance":"x","proof":{"value":"topsecret"}}`
}

func codesOf(rejected []identity.Rejection) string {
	var list []string
	for _, r := range rejected {
		list = append(list, r.Code)
	}
	return strings.Join(list, " ")
}

func TestEvidenceIsBelievedOrNot(t *testing.T) {
	piece, bad := trusted("acct:x@a.example", "address"), `{"subject":"acct:y@a.example","proof":{"value":"topsecret"}}`
	padded := func(n int) string { return strings.Replace(piece, "{", `{"pad":"`+strings.Repeat("x", n)+`",`, 1) }
	long := padded(identity.MaxEvidenceBytes)
	many := func(n int, piece string) string { return strings.TrimSuffix(strings.Repeat(piece+",", n), ",") }
	half := padded(30_000)
	for name, c := range map[string]struct {
		metadata string
		believed int // beside the transport's own
		rejected string
	}{
		"one":           {`{"mentionable":{"identity_evidence":[` + piece + `]}}`, 1, ""},
		"by URI":        {`{"https://mentionable.dev/ns/identity/v0.1":[` + piece + `]}`, 1, ""},
		"by old URI":    {`{"https://mentionable.dev/spec/identity/v0.1":{"identity_evidence":[` + piece + `]}}`, 1, ""},
		"both ways":     {`{"mentionable":{"identity_evidence":[` + piece + `]},"https://mentionable.dev/ns/identity/v0.1":[` + bad + `]}`, 1, identity.CodeExpired},
		"bad and good":  {`{"mentionable":{"identity_evidence":[` + bad + `,` + piece + `]}}`, 1, identity.CodeExpired},
		"no list":       {`{"mentionable":{"identity_evidence":` + piece + `}}`, 0, identity.CodeMalformed},
		"null":          {`{"mentionable":{"identity_evidence":null}}`, 0, ""},
		"sixteen":       {`{"mentionable":{"identity_evidence":[` + many(16, piece) + `]}}`, 15, identity.CodeLimitExceeded},
		"seventeen":     {`{"mentionable":{"identity_evidence":[` + many(17, piece) + `]}}`, 0, identity.CodeLimitExceeded},
		"long":          {`{"mentionable":{"identity_evidence":[` + long + `,` + piece + `]}}`, 1, identity.CodeLimitExceeded},
		"long together": {`{"mentionable":{"identity_evidence":[` + many(3, half) + `]}}`, 2, identity.CodeLimitExceeded},
		"too many VCs":  {`{"mentionable":{"verifiable_credentials":[1,2,3,4,5]}}`, 0, identity.CodeCredentialLimitExceeded},
		"VCs no list":   {`{"mentionable":{"verifiable_credentials":{}}}`, 0, identity.CodeCredentialMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			checker := &recorder{}
			b := setup(t, func(o *Options) { o.Validator = checker })
			r := b.rpc(b.ada, "SendMessage", withMetadata("m1", c.metadata))
			if r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" {
				t.Fatalf("the message did not go on: %.300s", r.body)
			}
			in := b.engine.last()
			identities := in.Message.Sender.Identities
			if len(identities) != 1+c.believed || codesOf(in.Rejected) != c.rejected {
				t.Errorf("%d identities, rejected %q", len(identities), codesOf(in.Rejected))
			}
			if carrier := in.Message.Sender.Carrier(); identities[0].Method != identity.MethodA2AOAuth || !strings.Contains(carrier, "token:") {
				t.Errorf("carrier %s", carrier)
			}
			if bytes.Contains(in.Original, []byte("topsecret")) || bytes.Contains(in.Original, []byte("trusted")) || !json.Valid(in.Original) {
				t.Errorf("kept %s", in.Original)
			}
			if strings.Contains(r.body+b.log.String(), "topsecret") {
				t.Error("evidence was written or logged")
			}
		})
	}
}

func TestEvidenceIsForTheAgentAndTheMessage(t *testing.T) {
	checker := &recorder{}
	b := setup(t, func(o *Options) { o.Validator = checker })
	b.rpc(b.ada, "SendMessage", withMetadata("m1", `{"mentionable":{"identity_evidence":[`+trusted("a", "agent")+`],"verifiable_credentials":[{}]}}`))
	in := b.engine.last()
	want := identity.Recipient{Address: "@echo@agents.test", CardURL: "https://agents.test/.well-known/agent-card/echo"}
	if checker.to != want || len(checker.offered) != 1 || checker.offered[0].Challenge != "m1" {
		t.Errorf("asked for %+v with %+v", checker.to, checker.offered)
	}
	if got := string(in.Message.Sender.Profile.Extensions[credentialsNamespace]); !strings.Contains(got, `"name":"Ada"`) || got[0] != '{' {
		t.Errorf("credentials %s", got)
	}
	if !in.FromAgent {
		t.Error("evidence of an agent does not make the sender one")
	}
}

func TestNoEvidenceCountsWithoutAValidator(t *testing.T) {
	b := setup(t)
	b.rpc(b.ada, "SendMessage", withMetadata("m1", `{"mentionable":{"identity_evidence":[`+trusted("a", "agent")+`],"verifiable_credentials":[{}]}}`))
	in := b.engine.last()
	if codesOf(in.Rejected) != identity.CodeUntrustedIssuer+" "+identity.CodeCredentialUntrustedIssuer || len(in.Message.Sender.Identities) != 1 || in.FromAgent {
		t.Errorf("%+v", in)
	}
}

func TestARepeatWithFreshEvidenceIsTheSameMessage(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	with := func(metadata string) reply { return b.rpc(b.ada, "SendMessage", withMetadata("m1", metadata)) }
	first := with(`{"mentionable":{"identity_evidence":[`+trusted("a", "x")+`]}}`).text(t, "result.task.id")
	for _, metadata := range []string{
		`{"mentionable":{"identity_evidence":[` + trusted("a", "x") + `]}}`,
		`{"mentionable":{"identity_evidence":[` + trusted("a", "x") + `],"verifiable_credentials":[1]}}`,
		`{"https://mentionable.dev/ns/identity/v0.1":[` + trusted("a", "x") + `]}`,
		`{"mentionable":{"identity_evidence":[` + used("a") + `]}}`, // the same evidence once more
	} {
		if again := with(metadata); again.text(t, "result.task.id") != first {
			t.Errorf("%s: %s", metadata, again.body)
		}
	}
	if other := with(`{"mentionable":{"identity_evidence":[` + trusted("a", "x") + `],"agent_chain":{"hop":1,"max_hops":2}}}`).decode(t); other.Error == nil {
		t.Error("another message passed for a repeat")
	}
	if b.engine.receives != 1 {
		t.Errorf("%d turns", b.engine.receives)
	}
}

func TestEvidenceInEveryBinding(t *testing.T) {
	checker := &recorder{}
	b := setup(t, func(o *Options) { o.Validator = checker })
	metadata := `"metadata":{"mentionable":{"identity_evidence":[` + trusted("a", "x") + `]}}`
	b.do("POST", "/a2a/echo/rest/message:send", b.ada, `{"message":{"messageId":"r1","role":"ROLE_USER","parts":[{"text":"x"}],`+metadata+`}}`)
	b.do("POST", "/a2a/echo/rest/message:send", b.ada, `{"message":{"messageId":"r2","role":"ROLE_USER","parts":[{"text":"x"}]},`+metadata+`}`)
	b.rpc(b.ada, "message/send", `{"message":{"kind":"message","messageId":"r3","role":"user","parts":[{"kind":"text","text":"x"}],`+metadata+`}}`)
	b.do("POST", "/a2a/echo/v1/message:send", b.ada, `{"message":{"messageId":"r4","role":"ROLE_USER","content":[{"text":"x"}],`+metadata+`}}`)
	if len(b.engine.inbounds) != 4 {
		t.Fatalf("%d messages came in", len(b.engine.inbounds))
	}
	for _, in := range b.engine.inbounds {
		if len(in.Message.Sender.Identities) != 2 || bytes.Contains(in.Original, []byte("topsecret")) {
			t.Errorf("%s: %d identities, kept %s", in.Message.ID, len(in.Message.Sender.Identities), in.Original)
		}
	}
}

func TestOnlyATrustedConnectorChangesTheRelay(t *testing.T) {
	for name, c := range map[string]struct{ metadata, want string }{
		"trusted":          {`{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"inline"}},"identity_evidence":[` + trusted("a", "platform") + `]}}`, "inline"},
		"without evidence": {`{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"inline"}}}}`, "none"},
		"bad evidence":     {`{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"inline"}},"identity_evidence":[{}]}}`, "none"},
		"other relay":      {`{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"addressing"}},"identity_evidence":[` + trusted("a", "platform") + `]}}`, "none"},
		"nonsense":         {`{"mentionable":{"recipient_capabilities":7,"identity_evidence":[` + trusted("a", "platform") + `]}}`, "none"},
	} {
		b := setup(t, func(o *Options) { o.Validator = &recorder{} })
		b.rpc(b.ada, "SendMessage", withMetadata("m1", c.metadata))
		if got := b.engine.last().Message.RecipientCapabilities.MentionRelay.Kind; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestChainMakesAnAgent(t *testing.T) {
	for chain, want := range map[string]*normalized.AgentChain{
		`{"hop":1,"max_hops":3}`:                    {Hop: 1, MaxHops: 3},
		`{"hop":2,"max_hops":2}`:                    {Hop: 2, MaxHops: 2, IsFinal: true},
		`{"hop":2.0,"max_hops":2,"is_final":false}`: {Hop: 2, MaxHops: 2, IsFinal: true},
		`{"hop":1}`: {Hop: 1, MaxHops: 4},
		`null`:      nil,
	} {
		b := setup(t)
		r := b.rpc(b.ada, "SendMessage", withMetadata("m1", `{"mentionable":{"agent_chain":`+chain+`}}`))
		in := b.engine.last()
		if got := in.Message.RecipientCapabilities.AgentChain; fmt.Sprint(got) != fmt.Sprint(want) || in.FromAgent != (want != nil) {
			t.Errorf("%s: %v, agent %v", chain, got, in.FromAgent)
		}
		if got := r.at(t, "result.task.metadata.mentionable.agent_chain.hop"); (got != nil) != (want != nil) {
			t.Errorf("%s: the answer's metadata has hop %v", chain, got)
		}
	}
}

func TestSettlements(t *testing.T) {
	resolution := `"policy_resolution":{"kind":"consent_required","in_reply_to_state":"STATE","outcome":"granted","resolved_at":"2026-11-21T12:00:00.000Z"}`
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	send := func(id, metadata string) *exchange.Settlement {
		b.rpc(b.ada, "SendMessage", withMetadata(id, metadata))
		in := b.engine.last()
		if bytes.Contains(in.Original, []byte("STATE")) || bytes.Contains(in.Original, []byte("topsecret")) {
			t.Errorf("kept %s", in.Original)
		}
		return in.Settlement
	}
	if got := send("m1", `{"a":1}`); got != nil {
		t.Errorf("nothing was offered: %+v", got)
	}
	if got := send("m2", `{"mentionable":{`+resolution+`}}`); got == nil || got.Resolution.InReplyToState != "STATE" || got.Payment != nil {
		t.Errorf("resolution: %+v", got)
	}
	if got := send("m3", `{"x402.payment.status":"payment-submitted","x402.payment.payload":{"sig":"topsecret"}}`); got == nil || string(got.Payment) != `{"sig":"topsecret"}` {
		t.Errorf("payment: %+v", got)
	}
	if got := send("m4", `{"x402.payment.status":"payment-required","x402.payment.payload":{"sig":"topsecret"}}`); got != nil {
		t.Errorf("a payment that was not submitted: %+v", got)
	}
	if got := send("m5", `{"mentionable":{"resumption_envelopes":[`+trusted("a", "agent")+`,{}]}}`); got == nil || len(got.Envelopes) != 1 {
		t.Errorf("envelopes: %+v", got)
	}
	in := b.engine.last()
	if len(in.Message.Sender.Identities) != 1 || codesOf(in.Rejected) != identity.CodeExpired {
		t.Errorf("envelopes are no identities: %+v", in)
	}
}

func TestAdmissionRefuses(t *testing.T) {
	b := setup(t)
	b.engine.refusal = fault.New(fault.Forbidden, "access:no_rule: this agent does not take messages from you")
	r := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	if got := r.decode(t); r.status != 403 || got.Error.Code != -31403 || !strings.HasPrefix(got.Error.Message, "access:no_rule") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func FuzzOffer(f *testing.F) {
	for _, seed := range []string{
		`{"mentionable":{"identity_evidence":[{"a":1}],"policy_resolution":{"kind":"x"},"agent_chain":{"hop":1}}}`,
		`{"x402.payment.status":"payment-submitted","x402.payment.payload":[]}`, `{"mentionable":[]}`, `{"mentionable":{"recipient_capabilities":{"mention_relay":[]}}}`,
		`{"https://mentionable.dev/ns/identity/v0.2":{"verifiable_credentials":[1,2,3,4]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var metadata map[string]any
		if json.Unmarshal(body, &metadata) != nil {
			return
		}
		req := &a2a.SendMessageRequest{Message: &a2a.Message{Metadata: metadata}}
		o, err := takeOffer(req)
		if err != nil {
			return
		}
		if len(o.evidence) > identity.MaxEvidence || len(o.credentials) > identity.MaxCredentials {
			t.Fatalf("%d pieces", len(o.evidence)+len(o.credentials))
		}
		left, _ := json.Marshal(map[string]any{"metadata": req.Message.Metadata})
		if !bytes.Equal(redact(left), left) && req.Message.Metadata != nil {
			t.Fatalf("left in the message: %s", left)
		}
		if chain := agentChain(req.Message.Metadata); chain != nil && chain.IsFinal != (chain.Hop == chain.MaxHops) && chain.Hop > 0 {
			t.Fatalf("chain %+v", chain)
		}
	})
}

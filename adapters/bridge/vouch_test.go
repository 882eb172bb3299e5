package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// judge returns what it is told to.
type judge struct {
	validation identity.Validation
	covers     bool
	asked      []identity.Evidence
}

func (j *judge) Validate(context.Context, identity.Offered, identity.Recipient) identity.Validation {
	return j.validation
}

func (j *judge) Covers(evidence identity.Evidence) bool {
	j.asked = append(j.asked, evidence)
	return j.covers
}

const (
	person = "T1/U1"
	inner  = `{"text":"hi","external_message_id":"m1","sender_id":"T1/U1"}`
)

// vouching lets a connector's message be vouched for. The body asks for an inline relay.
func vouching(t *testing.T, validator *judge, signed bool, issuer string) (question, bool, error) {
	t.Helper()
	raw := []byte(`{"message":` + inner + `,"evidence":[{}],"recipient_capabilities":{"mention_relay":{"kind":"inline"}}}`)
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	m := &relayed{
		connectors: &connectors{site: &site{Options{Domain: "agents.example", Validator: validator}}}, body: body, raw: raw, about: messageBytes(raw), signed: signed,
		connector: &Connector{Name: "slack", Issuer: issuer, Method: DefaultConnectorMethod},
	}
	q := question{
		agent: exchange.AgentProfile{Name: "echo", Address: "@echo@agents.example"}, relay: normalized.MentionRelay{Kind: normalized.RelayNone},
		message: contract.Message{Text: "hi", ConnectorID: "slack", Provider: "slack", MessageID: "m1", SenderID: person}, surface: surfaceConnector,
	}
	replayed, err := m.vouch(httptest.NewRequestWithContext(t.Context(), "POST", "/", nil), &q, "Ann")
	return q, replayed, err
}

func attested(subject, digest string) identity.Validation {
	return identity.Validation{Evidence: []identity.Evidence{{
		Subject: subject, Issuer: "bridge.example", Method: DefaultConnectorMethod, Assurance: identity.AssurancePlatform,
		Claims: json.RawMessage(fmt.Sprintf(`{"message_digest":%q}`, digest)),
	}}}
}

func TestASignatureProvesTheConnectorOnly(t *testing.T) {
	for name, c := range map[string]struct {
		validator judge
		issuer    string
		pieces    int
		relay     string
	}{
		"nobody vouches":              {judge{covers: true}, "", 1, normalized.RelayNone},
		"the issuer is not trusted":   {judge{}, "bridge.example", 1, normalized.RelayNone},
		"the issuer is trusted":       {judge{covers: true}, "bridge.example", 2, normalized.RelayInline},
		"evidence came beside it":     {judge{validation: attested("slack:"+person, "")}, "bridge.example", 2, normalized.RelayInline},
		"evidence about someone else": {judge{validation: attested("slack:T1/U2", "")}, "bridge.example", 1, normalized.RelayNone},
		"evidence of someone else":    {judge{validation: attested("slack:"+person, "")}, "other.example", 1, normalized.RelayNone},
	} {
		q, replayed, err := vouching(t, &c.validator, true, c.issuer)
		if err != nil || replayed {
			t.Fatalf("%s: %v, %v", name, replayed, err)
		}
		if got := q.sender.Principal(); got != "agents.example connector:slack/"+person {
			t.Errorf("%s: the principal is %s", name, got)
		}
		if len(q.sender.Identities) != c.pieces || q.relay.Kind != c.relay {
			t.Errorf("%s: %d pieces and relay %s, want %d and %s", name, len(q.sender.Identities), q.relay.Kind, c.pieces, c.relay)
		}
		for i := range q.sender.Identities[:1] {
			if found := q.sender.Identities[i].CheckShape(); found != nil {
				t.Errorf("%s: %v", name, found)
			}
		}
		if q.sender.Identities[0].Assurance != AssuranceConnector || len(c.validator.asked) > 0 && c.validator.asked[0].Subject != "slack:"+person {
			t.Errorf("%s: %+v", name, q.sender.Identities[0])
		}
	}
}

func TestSignedEvidenceProvesOneMessage(t *testing.T) {
	sum := sha256.Sum256([]byte(inner))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	used := identity.Validation{Rejected: []identity.Rejection{{Code: identity.CodeReplayed, Issuer: "bridge.example"}}}
	for name, c := range map[string]struct {
		validation identity.Validation
		issuer     string
		refused    bool
		replayed   bool
	}{
		"about this message":      {attested("slack:"+person, digest), "bridge.example", false, false},
		"about another message":   {attested("slack:"+person, "sha256:00"), "bridge.example", true, false},
		"about no message":        {attested("slack:"+person, ""), "bridge.example", true, false},
		"about another person":    {attested("slack:T1/U2", digest), "bridge.example", true, false},
		"of another issuer":       {attested("slack:"+person, digest), "other.example", true, false},
		"used before":             {used, "bridge.example", false, true},
		"used before, by another": {used, "other.example", true, false},
		"not believed":            {identity.Validation{Rejected: []identity.Rejection{{Code: identity.CodeInvalidSignature, Issuer: "bridge.example"}}}, "bridge.example", true, false},
		"none":                    {identity.Validation{}, "bridge.example", true, false},
	} {
		_, replayed, err := vouching(t, &judge{validation: c.validation, covers: true}, false, c.issuer)
		if fault.Is(err, fault.Unauthenticated) != c.refused || replayed != c.replayed || !c.refused && err != nil {
			t.Errorf("%s: replayed %v, %v", name, replayed, err)
		}
	}
}

func TestChainsOfAgents(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: `null`, `{"metadata":{"mentionable":{"agent_chain":{"hop":1,"max_hops":2}}}}`: `{"hop":1,"max_hops":2,"is_final":false}`,
		`{"metadata":{"mentionable":{"agent_chain":"x"}}}`: `{"hop":0,"max_hops":4,"is_final":false}`,
	} {
		body, err := decodeObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(compact(chainOf(body))); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/identity"
	"inbox/normalized"
)

const slackMethod = "urn:mentionable:auth:slack-workspace-member:v0.1"

// connector vouches for the members of a chat: it publishes its card and signs.
type connector struct {
	Issuer string
	key    identity.SigningKey
}

func startConnector(t *testing.T) *connector {
	t.Helper()
	c := &connector{}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/.well-known/adapter-card" {
			http.NotFound(writer, request)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write(identity.ConnectorCard(c.Issuer, nil, []identity.PublicKey{c.key.Public()}, nil))
	}))
	t.Cleanup(server.Close)
	c.Issuer = strings.TrimPrefix(server.URL, "http://")
	c.key = newSigningKey(t, c.Issuer)
	return c
}

func newSigningKey(t *testing.T, issuer string) identity.SigningKey {
	t.Helper()
	key, err := identity.NewSigningKey(issuer)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// attest signs that somebody is a member, after the change.
func (c *connector) attest(t *testing.T, audience string, key identity.SigningKey, change func(*identity.Evidence)) identity.Evidence {
	t.Helper()
	e := identity.Evidence{
		Subject: "slack:T123/U456", Method: slackMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{audience},
	}
	if change != nil {
		change(&e)
	}
	signed, err := identity.Sign(e, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func evidenceBody(t *testing.T, id string, mentionable map[string]any) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
		"params": map[string]any{"message": map[string]any{
			"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{{"text": "hello " + id}},
			"metadata": map[string]any{"mentionable": mentionable},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestOnlyGoodEvidenceIsBelieved(t *testing.T) {
	connector := startConnector(t)
	stranger := startConnector(t)
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("hello") })
	s := start(t, instance.Settings{Agents: agent.table("helper", ""), More: fmt.Sprintf(
		"[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", connector.Issuer, slackMethod)})
	peer := s.a2aPeer("helper", "connector")
	address := "@helper@" + s.Settings.HTTP
	good := connector.attest(t, address, connector.key, nil)
	forged := connector.attest(t, address, connector.key, nil)
	forged.Subject = "slack:T123/U000"
	expired := time.Now().Add(-time.Hour)
	old := connector.attestAt(t, address, expired)
	long := connector.attest(t, address, connector.key, nil)
	long.Claims = json.RawMessage(`{"long":"` + strings.Repeat("x", 33<<10) + `"}`)
	cases := []struct {
		name     string
		evidence identity.Evidence
		code     string // empty = believed
	}{
		{"good", good, ""},
		{"replayed", good, "evidence:replayed"},
		{"forged", forged, "evidence:invalid_signature"},
		{"expired", old, "evidence:expired"},
		{"wrong audience", connector.attest(t, "@other@"+s.Settings.HTTP, connector.key, nil), "evidence:wrong_audience"},
		{"another workspace", connector.attest(t, address, connector.key, func(e *identity.Evidence) { e.Subject = "slack:T1234/U456" }), "evidence:not_covered"},
		{"a key that is not published", connector.attest(t, address, newSigningKey(t, connector.Issuer), nil), "evidence:unknown_key"},
		{"untrusted issuer", stranger.attest(t, address, stranger.key, nil), "evidence:untrusted_issuer"},
		{"self-issued", connector.attest(t, address, newSigningKey(t, s.Settings.HTTP), nil), "evidence:self_issued"},
		{"on behalf without the right", connector.attest(t, address, connector.key, func(e *identity.Evidence) { e.OnBehalfOf = []string{"acct:boss@example.org"} }), "evidence:delegation_not_allowed"},
		{"over-long", long, "evidence:limit_exceeded"},
		{"transport proof from outside", identity.Evidence{
			Subject: "slack:T123/U456", Issuer: s.Settings.HTTP, Method: slackMethod, Assurance: "platform", Audience: identity.Audience{address},
			IssuedAt: identity.Now(), Proof: identity.Proof{Type: identity.ProofTransport, VerifiedBy: s.Settings.HTTP},
		}, "evidence:own_proof_from_peer"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := len(auditCodes(t, s.Instance))
			task, err := peer.Send(t.Context(), evidenceBody(t, c.name, map[string]any{"identity_evidence": []any{c.evidence}}))
			if err != nil || task.Status.State != completed {
				t.Fatalf("the message itself must go on: %s, %v", task.Status.State, err)
			}
			asked := agent.last(t)
			believed := slices.ContainsFunc(asked.Sender.Identities, func(e identity.Evidence) bool { return e.Method == slackMethod })
			if believed != (c.code == "") {
				t.Errorf("believed: %v; identities %+v", believed, asked.Sender.Identities)
			}
			if codes := auditCodes(t, s.Instance)[before:]; c.code != "" && !slices.Contains(codes, c.code) {
				t.Errorf("on record: %v; want %s", codes, c.code)
			}
		})
	}
	t.Run("nothing of it is stored", func(t *testing.T) {
		originals, err := s.Column(t.Context(), "SELECT body FROM originals")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(originals, ""), good.Proof.Value) {
			t.Error("a signed proof is stored with the original")
		}
	})
}

// attestAt signs as if it were another time.
func (c *connector) attestAt(t *testing.T, audience string, at time.Time) identity.Evidence {
	t.Helper()
	signed, err := identity.Sign(identity.Evidence{
		Subject: "slack:T123/U456", Method: slackMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{audience},
	}, c.key, at)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestBadChainsAreRefused(t *testing.T) {
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("hello") })
	s := start(t, instance.Settings{Agents: agent.table("helper", "")})
	peer := s.a2aPeer("helper", "looper")
	for _, hop := range []string{"-1", "1.5", "99", "0"} {
		t.Run(hop, func(t *testing.T) {
			before := len(auditCodes(t, s.Instance))
			chain := json.RawMessage(`{"hop":` + hop + `,"max_hops":4}`)
			task, err := peer.Send(t.Context(), evidenceBody(t, "hop"+hop, map[string]any{"agent_chain": chain}))
			if err == nil {
				t.Fatalf("a chain at hop %s was taken: %s", hop, task.Status.State)
			}
			if !strings.Contains(err.Error(), "chain:exhausted") {
				t.Errorf("refused with %v; want chain:exhausted", err)
			}
			if codes := auditCodes(t, s.Instance)[before:]; !slices.Contains(codes, "chain:exhausted") {
				t.Errorf("on record: %v; want chain:exhausted", codes)
			}
		})
	}
	if asked := agent.questions(); len(asked) != 0 {
		t.Errorf("the agent was asked %d times", len(asked))
	}
	task, err := peer.Send(t.Context(), evidenceBody(t, "good", map[string]any{"agent_chain": map[string]int{"hop": 4, "max_hops": 9}}))
	if err != nil || task.Status.State != completed {
		t.Fatalf("a chain at its end is answered: %s, %v", task.Status.State, err)
	}
	if chain := agent.last(t).RecipientCapabilities.AgentChain; chain == nil || chain.MaxHops != 4 || !chain.IsFinal {
		t.Errorf("the agent sees %+v; want our ceiling 4 and the last hop", chain)
	}
}

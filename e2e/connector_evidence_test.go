package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/identity"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

const (
	relaySecret = "a secret that only the tests know"
	relayMethod = "urn:mentionable:auth:platform-mention:v0.1"
	relayInline = `"recipient_capabilities":{"mention_relay":{"kind":"inline"}}`
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// about signs that a person wrote the content.
func (c *connector) about(t *testing.T, audience, content string, key identity.SigningKey, at time.Time, change func(*identity.Evidence)) identity.Evidence {
	t.Helper()
	e := identity.Evidence{
		Subject: "slack:T123/U456", Method: relayMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{audience},
		Claims: json.RawMessage(`{"message_digest":"` + digestOf(content) + `"}`),
	}
	if change != nil {
		change(&e)
	}
	signed, err := identity.Sign(e, key, at)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func enveloped(t *testing.T, message string, more string, evidence ...identity.Evidence) []byte {
	t.Helper()
	encoded, err := json.Marshal(evidence)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"message":%s,"evidence":%s%s}`, message, encoded, more)
}

// TestConnectorsProveByEvidence hands in messages whose only proof is evidence of the connector's own issuer: the good one is
// taken, with its person and its platform's relay; every other one is refused without a turn.
func TestConnectorsProveByEvidence(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		issuer, stranger := startConnector(t), startConnector(t)
		agent := startScripted(t, func(normalized.Message) normalized.Response { return say("heard") })
		trusted := fmt.Sprintf("[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", issuer.Issuer, relayMethod)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("helper", ""), More: trusted + fmt.Sprintf(
			"[[connectors]]\nname = \"sealed\"\nissuer = %q\nagents = [\"helper\"]\n[[connectors]]\nname = \"strange\"\nissuer = %q\nagents = [\"helper\"]\n", issuer.Issuer, stranger.Issuer)})
		const path = "/v1/connectors/sealed/messages"
		address := "@helper@" + s.Settings.HTTP
		number := 0
		message := func() string {
			number++
			return fmt.Sprintf(`{"text":"hello %d","external_provider":"slack","external_message_id":"m%d","sender_id":"T123/U456"}`, number, number)
		}
		turns := func() int {
			found, err := s.Column(t.Context(), "SELECT id FROM turns")
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		now := time.Now()
		refused := map[string]func(m string) (string, []byte){ // message → path and body
			"a key that is not published": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, address, m, newSigningKey(t, issuer.Issuer), now, nil))
			},
			"for another agent": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, "@other@"+s.Settings.HTTP, m, issuer.key, now, nil))
			},
			"expired": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, address, m, issuer.key, now.Add(-time.Hour), nil))
			},
			"about another message": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, address, m+" ", issuer.key, now, nil))
			},
			"about no message": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, address, m, issuer.key, now, func(e *identity.Evidence) { e.Claims = nil }))
			},
			"about another person": func(m string) (string, []byte) {
				return path, enveloped(t, m, "", issuer.about(t, address, m, issuer.key, now, func(e *identity.Evidence) { e.Subject = "slack:T123/U1" }))
			},
			"of another workspace": func(m string) (string, []byte) {
				m = strings.Replace(m, "T123/", "T1234/", 1)
				return path, enveloped(t, m, "", issuer.about(t, address, m, issuer.key, now, func(e *identity.Evidence) { e.Subject = "slack:T1234/U456" }))
			},
			"of an issuer that nobody trusts": func(m string) (string, []byte) {
				return "/v1/connectors/strange/messages", enveloped(t, m, "", stranger.about(t, address, m, stranger.key, now, nil))
			},
			"of another connector": func(m string) (string, []byte) {
				return "/v1/connectors/strange/messages", enveloped(t, m, "", issuer.about(t, address, m, issuer.key, now, nil))
			},
			"the signature changed": func(m string) (string, []byte) {
				e := issuer.about(t, address, m, issuer.key, now, nil)
				e.Subject = "slack:T123/U456 "
				return path, enveloped(t, m, "", e)
			},
			"about a member that looks like the message": func(m string) (string, []byte) {
				signed := strings.Replace(m, "hello", "goodbye", 1)
				return path, fmt.Appendf(nil, `{"message":%s,"Message":%s,"evidence":%s}`, m, signed,
					encode(t, []identity.Evidence{issuer.about(t, address, signed, issuer.key, now, nil)}))
			},
			"none": func(m string) (string, []byte) { return path, enveloped(t, m, "") },
		}
		for name, write := range refused {
			where, body := write(message())
			if status, _, answer := s.handIn(where, "", body); status != http.StatusUnauthorized || strings.Contains(fmt.Sprint(answer), "T123") {
				t.Errorf("%s: answered %d %v", name, status, answer)
			}
		}
		if taken := turns(); taken != 0 {
			t.Fatalf("of refused messages there are %d turns", taken)
		}

		m := message()
		body := enveloped(t, m, `,`+relayInline, issuer.about(t, address, m, issuer.key, now, nil))
		if status, _, answer := s.handIn(path+"?wait=20s", "", body); status != http.StatusOK || answer["reply"] != "heard" {
			t.Fatalf("good evidence is answered %d %v", status, answer)
		}
		asked := agent.last(t)
		if !slices.ContainsFunc(asked.Sender.Identities, func(e identity.Evidence) bool { return e.Subject == "slack:T123/U456" && e.Assurance == "platform" }) {
			t.Errorf("the agent is told %+v", asked.Sender.Identities)
		}
		if asked.RecipientCapabilities.MentionRelay.Kind != normalized.RelayInline {
			t.Errorf("the relay is %+v", asked.RecipientCapabilities.MentionRelay)
		}
		for range 3 { // its evidence is used: the same bytes are acknowledged, and nothing else
			if status, _, answer := s.handIn(path, "", body); status != http.StatusOK || !isTrue(answer["duplicate"]) {
				t.Errorf("the repeat is answered %d %v", status, answer)
			}
		}
		other := strings.Replace(string(body), "hello", "howdy", 1)
		if status, _, _ := s.handIn(path, "", []byte(other)); status != http.StatusUnauthorized {
			t.Errorf("used evidence beside other words is answered %d", status)
		}
		if taken := turns(); taken != 1 {
			t.Errorf("there are %d turns", taken)
		}
	})
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// TestOnlyTrustedConnectorsOverrideTheRelay: under a good signature, evidence of an issuer that nobody trusts, and the word of a
// connector that is not on the list, are worth a subject of this server's own and no relay.
func TestOnlyTrustedConnectorsOverrideTheRelay(t *testing.T) {
	issuer, stranger := startConnector(t), startConnector(t)
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("heard") })
	more := fmt.Sprintf("[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", issuer.Issuer, relayMethod)
	for name, by := range map[string]string{"trusted": issuer.Issuer, "unknown": stranger.Issuer, "nobody": ""} {
		more += fmt.Sprintf("[[connectors]]\nname = %q\nsecret = %q\nagents = [\"helper\"]\n", name, relaySecret)
		if by != "" {
			more += fmt.Sprintf("issuer = %q\n", by)
		}
	}
	s := start(t, instance.Settings{Agents: agent.table("helper", ""), More: more})
	address := "@helper@" + s.Settings.HTTP
	for i, c := range []struct {
		connector, person string
		signer            *connector
		relay             string
		pieces            int
	}{
		{"trusted", "T123/U456", nil, normalized.RelayInline, 2},
		{"trusted", "T999/U456", nil, normalized.RelayNone, 1},
		{"unknown", "T123/U456", nil, normalized.RelayNone, 1},
		{"unknown", "T123/U456", stranger, normalized.RelayNone, 1},
		{"unknown", "T123/U456", issuer, normalized.RelayNone, 1}, // trusted, and not this connector's
		{"nobody", "T123/U456", nil, normalized.RelayNone, 1},
		{"trusted", "T123/U456", issuer, normalized.RelayInline, 2},
	} {
		message := fmt.Sprintf(`{"text":"hello","external_provider":"slack","external_message_id":"m%d","sender_id":%q}`, i, c.person)
		body := fmt.Appendf(nil, `{"message":%s,%s}`, message, relayInline)
		if c.signer != nil {
			body = enveloped(t, message, ","+relayInline, c.signer.about(t, address, message, c.signer.key, time.Now(), nil))
		}
		status, _, answer := s.handIn("/v1/connectors/"+c.connector+"/messages?wait=20s", webhooksignature.Sign(relaySecret, body), body)
		if status != http.StatusOK {
			t.Fatalf("%d: answered %d %v", i, status, answer)
		}
		asked := agent.last(t)
		if got := asked.RecipientCapabilities.MentionRelay.Kind; got != c.relay || len(asked.Sender.Identities) != c.pieces {
			t.Errorf("%d: relay %s and %d identities, want %s and %d", i, got, len(asked.Sender.Identities), c.relay, c.pieces)
		}
		if want := "connector:" + c.connector + "/" + c.person; asked.Sender.Identities[0].Subject != want {
			t.Errorf("%d: the principal is %s, want %s", i, asked.Sender.Identities[0].Subject, want)
		}
	}
}

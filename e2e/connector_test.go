package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/children"
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
//
//contract:shows message-13 message-14
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

// TestOnlyTrustedConnectorsOverrideTheRelay: under a good signature, evidence of an issuer that no one trusts, and the word of a
// connector that is not on the list, are worth a subject of this server's own and no relay.
//
//contract:shows message-35 message-39
func TestOnlyTrustedConnectorsOverrideTheRelay(t *testing.T) {
	t.Parallel()
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

// askRun asks for a run under a signature and tells status and answer.
func (s *server) askRun(location, header string) (int, map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+location, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("X-Inbox-Signature", header)
	status, _, answer := exchanged(s.t, request)
	return status, answer
}

// TestAWaitThatEndsTellsWhereToAsk hands in messages whose answers take longer than the wait. The connector asks for them where
// Location says, by its secret or by evidence, also after the server was killed; no one else does, and no message is taken twice.
func TestAWaitThatEndsTellsWhereToAsk(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		issuer := startConnector(t)
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			<-gate
			return say("about " + textOf(message.Parts))
		})
		t.Cleanup(release)
		s := start(t, instance.Settings{Database: database, Lease: "1s", Agents: agent.table("helper", ""), More: fmt.Sprintf(
			"[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", issuer.Issuer, relayMethod) +
			fmt.Sprintf("[[connectors]]\nname = \"sealed\"\nissuer = %q\nagents = [\"helper\"]\n", issuer.Issuer) +
			fmt.Sprintf("[[connectors]]\nname = \"signed\"\nsecret = %q\nagents = [\"helper\"]\n", relaySecret) +
			"[[connectors]]\nname = \"other\"\nsecret = \"another secret, as long\"\nagents = [\"helper\"]\n"})
		message := `{"text":"tea","external_provider":"slack","external_message_id":"m1","sender_id":"T123/U456"}`
		status, header, answer := s.handIn("/v1/connectors/signed/messages?wait=100ms", webhooksignature.Sign(relaySecret, []byte(message)), []byte(message))
		signed := header.Get("Location")
		if status != http.StatusAccepted || signed != "/v1/connectors/signed/runs/"+fmt.Sprint(answer["run_id"]) || answer["reply"] != nil {
			t.Fatalf("a wait that ended is answered %d %v %v", status, header, answer)
		}
		audience := "@helper@" + s.Settings.HTTP
		body := enveloped(t, message, "", issuer.about(t, audience, message, issuer.key, time.Now(), nil))
		status, header, answer = s.handIn("/v1/connectors/sealed/messages?wait=100ms", "", body)
		sealed := header.Get("Location")
		if status != http.StatusAccepted || sealed != "/v1/connectors/sealed/runs/"+fmt.Sprint(answer["run_id"]) {
			t.Fatalf("a wait that ended is answered %d %v %v", status, header, answer)
		}
		if status, answer := s.askRun(signed, webhooksignature.Sign(relaySecret, []byte(signed))); status != http.StatusAccepted || answer["reply"] != nil {
			t.Errorf("a run that goes on: %d %v", status, answer)
		}
		s.killed()
		release()
		if status, answer := s.askRun(signed+"?wait=20s", webhooksignature.Sign(relaySecret, []byte(signed))); status != http.StatusOK || answer["reply"] != "about tea" {
			t.Errorf("the answer is %d %v", status, answer)
		}
		prove := func(content string) []byte {
			return fmt.Appendf(nil, `{"evidence":%s}`, encode(t, []any{issuer.about(t, audience, content, issuer.key, time.Now(), nil)}))
		}
		if status, _, answer := s.handIn(sealed+"?wait=20s", "", prove(sealed)); status != http.StatusOK || answer["reply"] != "about tea" {
			t.Errorf("the answer is %d %v", status, answer)
		}
		unknown := signed + "0"
		for name, c := range map[string]struct {
			location, header string
			body             []byte
			want             int
		}{
			"no signature":               {signed, "", nil, http.StatusUnauthorized},
			"a signature of nothing":     {signed, webhooksignature.Sign(relaySecret, nil), nil, http.StatusUnauthorized},
			"another secret":             {signed, webhooksignature.Sign("another secret, as long", []byte(signed)), nil, http.StatusUnauthorized},
			"the signature of another":   {unknown, webhooksignature.Sign(relaySecret, []byte(signed)), nil, http.StatusUnauthorized},
			"no such run":                {unknown, webhooksignature.Sign(relaySecret, []byte(unknown)), nil, http.StatusNotFound},
			"another connector's":        {strings.Replace(signed, "signed", "other", 1), webhooksignature.Sign("another secret, as long", []byte(strings.Replace(signed, "signed", "other", 1))), nil, http.StatusNotFound},
			"an unknown connector":       {strings.Replace(signed, "signed", "none", 1), webhooksignature.Sign(relaySecret, []byte(signed)), nil, http.StatusUnauthorized},
			"no evidence":                {sealed, "", nil, http.StatusUnauthorized},
			"evidence about a message":   {sealed, "", prove(message), http.StatusUnauthorized},
			"evidence about another run": {strings.Replace(signed, "signed", "sealed", 1), "", prove(sealed), http.StatusUnauthorized},
			"another's run by evidence":  {strings.Replace(signed, "signed", "sealed", 1), "", prove(strings.Replace(signed, "signed", "sealed", 1)), http.StatusNotFound},
		} {
			var status int
			if c.body == nil {
				status, _ = s.askRun(c.location, c.header)
			} else {
				status, _, _ = s.handIn(c.location, c.header, c.body)
			}
			if status != c.want {
				t.Errorf("%s: answered %d, want %d", name, status, c.want)
			}
		}
		if turns, err := s.Column(t.Context(), "SELECT id FROM turns"); err != nil || len(turns) != 2 {
			t.Errorf("there are %d turns, %v", len(turns), err)
		}
	})
}

// runSlackConnector builds the example program and starts it with the settings.
func runSlackConnector(t *testing.T, settings ...string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "connector-slack")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "connector-slack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	relay := exec.Command(binary)
	relay.Env = append(os.Environ(), settings...)
	output, err := relay.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(relay); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.Process.Kill(); _ = await.Result(t, relay.Wait, "the end of the connector") })
	if firstLine(t, output, "the connector to listen") == "" {
		t.Fatal("the connector did not start")
	}
}

// TestSlackConnector brings an outgoing webhook to an agent and its answer to an incoming one, by the example program.
//
//contract:shows channels-5 channels-7 channels-10
func TestSlackConnector(t *testing.T) {
	t.Parallel()
	posts := make(chan string, 64)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- string(body)
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(hooks.Close)
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a secret that only the tests know"
	s := start(t, instance.Settings{More: fmt.Sprintf("[bridges]\nretry = [\"200ms\", \"1s\"]\n[[connectors]]\nname = \"slack\"\nsecret = %q\nagents = [\"echo\"]\ncallback_url = %q\n",
		secret, "http://"+address+"/answers")})
	runSlackConnector(t, "INBOX_URL="+s.URL()+"/v1/connectors/slack/messages", "INBOX_SECRET="+secret,
		"HOOK_TOKEN=XXXXXXXXXXXXXXXXXX", "POST_URL="+hooks.URL, "LISTEN="+address)
	payload, err := os.ReadFile(filepath.Join(examplesDirectory(t), "connector-slack", "testdata", "slack.txt"))
	if err != nil {
		t.Fatal(err)
	}
	hook := func() {
		t.Helper()
		response, err := http.Post("http://"+address+"/hook", "application/x-www-form-urlencoded", bytes.NewReader(bytes.TrimSpace(payload)))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("the hook answered %d\n%s", response.StatusCode, tail(s.Log(), 4096))
		}
	}
	for range 20 {
		hook()
	}
	select {
	case got := <-posts:
		if !strings.Contains(got, "air-speed velocity") || !strings.Contains(got, `"channel":"C2147483705"`) {
			t.Errorf("posted %s", got)
		}
	case <-time.After(patience):
		t.Fatalf("nothing was posted\n%s", tail(s.Log(), 4096))
	}
	s.killed()
	hook()
	eventually(t, "nothing is left to deliver", func() bool {
		left, err := s.Column(t.Context(), "SELECT state FROM deliveries WHERE state <> 'delivered'")
		return err == nil && len(left) == 0
	})
	if len(posts) > 0 {
		t.Errorf("posted again: %s", <-posts)
	}
	if turns, err := s.Column(t.Context(), "SELECT id FROM turns"); err != nil || len(turns) != 1 {
		t.Errorf("%d messages were taken, %v", len(turns), err)
	}
}

// TestSlackApp mentions an agent in a channel of Slack and goes on in the thread: the same event comes five times, its answer once,
// into the thread, and the thread is one conversation.
//
//contract:shows channels-4 channels-6 channels-10
func TestSlackApp(t *testing.T) {
	t.Parallel()
	const signing = "the signing secret of the app"
	posts := make(chan string, 64)
	slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(slack.Close)
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, instance.Settings{More: fmt.Sprintf("[[connectors]]\nname = \"slack\"\nsecret = %q\nagents = [\"echo\"]\ncallback_url = %q\n",
		relaySecret, "http://"+address+"/answers")})
	runSlackConnector(t, "INBOX_URL="+s.URL()+"/v1/connectors/slack/messages", "INBOX_SECRET="+relaySecret,
		"SLACK_SIGNING_SECRET="+signing, "SLACK_BOT_TOKEN=xoxb-1", "SLACK_API="+slack.URL+"/api", "LISTEN="+address)
	mention, err := os.ReadFile(filepath.Join(examplesDirectory(t), "connector-slack", "testdata", "events.json"))
	if err != nil {
		t.Fatal(err)
	}
	event := func(body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		stamp := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(signing))
		mac.Write([]byte("v0:" + stamp + ":" + body))
		request.Header.Set("X-Slack-Request-Timestamp", stamp)
		request.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		if status, _, _ := exchanged(t, request); status != http.StatusOK {
			t.Fatalf("an event is answered %d\n%s", status, tail(s.Log(), 4096))
		}
	}
	answer := func(text string) {
		t.Helper()
		select {
		case got := <-posts:
			if want := `/api/chat.postMessage Bearer xoxb-1 {"channel":"C123ABC456","text":"` + text + `","thread_ts":"1515449522.000016"}`; got != want {
				t.Errorf("posted %s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("nothing was posted\n%s", tail(s.Log(), 4096))
		}
	}
	for range 5 {
		event(string(mention))
	}
	answer(`is it \u003ceverything\u003e a river should be?`)
	next := strings.NewReplacer(`"ts": "1515449522.000016"`, `"thread_ts": "1515449522.000016", "ts": "1515449530.000001"`, "is it", "was it").Replace(string(mention))
	event(next)
	answer(`was it \u003ceverything\u003e a river should be?`)
	event(strings.Replace(next, `"user":`, `"bot_id": "B1", "user":`, 1))
	if sessions, err := s.Column(t.Context(), "SELECT id FROM sessions"); err != nil || len(sessions) != 1 {
		t.Errorf("one thread is %d conversations, %v", len(sessions), err)
	}
	if turns, err := s.Column(t.Context(), "SELECT id FROM turns"); err != nil || len(turns) != 2 || len(posts) > 0 {
		t.Errorf("%d messages were taken, %d answers too many, %v", len(turns), len(posts), err)
	}
}

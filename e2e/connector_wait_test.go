package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

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
// Location says, by its secret or by evidence, also after the server was killed; nobody else does, and no message is taken twice.
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

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/identity"
)

func TestHeldMailWaitsForTheOperator(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		for _, id := range []string{"unsigned-1@nowhere.test", "unsigned-2@nowhere.test"} {
			mail := load.Mail{From: "bob@nowhere.test", To: "echo@inbox.test", MessageID: id, Subject: "Hi", Body: "hello?"}
			p.send("bob@nowhere.test", "echo@inbox.test", mail.Bytes())
			if state := p.state(id); state != exchange.StateHeld {
				t.Fatalf("mail %s is %s; want held", id, state)
			}
		}
		var held []exchange.TurnRecord
		if err := json.Unmarshal([]byte(p.inbox("held", "list", "--json")), &held); err != nil || len(held) != 2 {
			t.Fatalf("held list: %v, %v", held, err)
		}
		first, second := held[1], held[0] // newest first
		p.inbox("held", "release", first.ID)
		p.outbox.await(t, first.Message.ID)

		for name, token := range map[string]string{"none": "", "a peer's": p.peerToken("nosy")} {
			if status, _ := p.api(http.MethodPost, "/held/"+second.ID+"/release", token); status != http.StatusUnauthorized && status != http.StatusForbidden {
				t.Errorf("the operator API took %s token: %d", name, status)
			}
		}
		if status, body := p.api(http.MethodPost, "/held/"+second.ID+"/drop", p.adminToken()); status >= http.StatusBadRequest {
			t.Errorf("drop by the API: %d %s", status, body)
		}
		if state := p.state(second.Message.ID); state != exchange.StateRefused {
			t.Errorf("the dropped mail is %s; want refused", state)
		}
		if status, body := p.api(http.MethodGet, "/held", p.adminToken()); status != http.StatusOK || strings.Contains(body, second.ID) {
			t.Errorf("held by the API: %d %s", status, body)
		}
		if replies, _ := p.outbox.repliesTo(second.Message.ID); len(replies) != 0 {
			t.Error("a dropped mail was answered")
		}
	})
}

func (s *server) peerToken(name string) string {
	s.t.Helper()
	token, err := s.Token(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// adminToken is the one that the server wrote at its first start.
func (s *server) adminToken() string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.Directory, "data", "admin-token"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// api calls the operator API.
func (s *server) api(method, path, token string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+"/api/v1"+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestKeyDocumentsNameTheSameKey(t *testing.T) {
	p := startPost(t, "")
	var keys struct {
		Keys []struct{ Kty, Crv, Kid, X, Alg, Use string }
	}
	document(t, p.URL()+"/.well-known/jwks.json", &keys)
	if len(keys.Keys) != 1 || keys.Keys[0].Kty != "OKP" || keys.Keys[0].Crv != "Ed25519" || keys.Keys[0].X == "" {
		t.Fatalf("jwks.json: %+v", keys)
	}
	var did struct {
		ID              string
		AssertionMethod []any
	}
	document(t, p.URL()+"/.well-known/did.json", &did)
	if did.ID != "did:web:inbox.test" || len(did.AssertionMethod) == 0 {
		t.Errorf("did.json: %+v", did)
	}
	card := map[string]any{}
	document(t, p.URL()+"/.well-known/adapter-card", &card)
	if text, _ := json.Marshal(card); !strings.Contains(string(text), keys.Keys[0].Kid) || !strings.Contains(string(text), "inbox.test") {
		t.Errorf("adapter-card: %s", text)
	}
	agent := map[string]any{}
	document(t, p.URL()+"/.well-known/agent-card/echo", &agent)
	if text, _ := json.Marshal(agent); !strings.Contains(string(text), "identity_policy") || !strings.Contains(string(text), identity.EvidenceExtension) {
		t.Errorf("agent card: %s", text)
	}
}

func document(t *testing.T, address string, into any) {
	t.Helper()
	status, body := page(t, http.MethodGet, address, nil)
	if err := json.Unmarshal([]byte(body), into); status != http.StatusOK || err != nil {
		t.Fatalf("%s answered %d %s: %v", address, status, body, err)
	}
}

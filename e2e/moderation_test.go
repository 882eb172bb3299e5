package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/normalized"
)

// soon is how long a change of the lists may take to reach a server that runs; it reads them every two seconds.
const soon = 6 * time.Second

// knock delivers a new mention of the agent at a node of the server and returns the status.
func (f *fediverse) knock(s *server, node, agent string, person int, text string) (load.Mention, int) {
	f.t.Helper()
	f.sent++
	mention := f.Persons[person].Mention(s.Actor(agent), fmt.Sprint("knock-", f.sent), text)
	request := delivery(f.t, f.Persons[person], s.Actor(agent)+"/inbox", mention, load.Signature{})
	request.Host, request.URL.Host = request.URL.Host, node
	return mention, do(f.t, request)
}

// awaitStatus delivers mentions until one is answered with the status.
func (f *fediverse) awaitStatus(s *server, node, agent string, status int) {
	f.t.Helper()
	began, ticker := time.Now(), time.NewTicker(200*time.Millisecond)
	defer ticker.Stop()
	for {
		if _, got := f.knock(s, node, agent, 0, "let me in"); got == status {
			break
		}
		if time.Since(began) > patience {
			f.t.Fatalf("%s does not answer %d", node, status)
		}
		<-ticker.C
	}
	if took := time.Since(began); took > soon {
		f.t.Errorf("the server noticed after %s", took)
	}
}

// secondNode starts another process on the database of a server, which stands for it under its name.
func secondNode(t *testing.T, of *server) *server {
	t.Helper()
	settings := of.Settings
	settings.Public, settings.HTTP, settings.SMTP = of.Settings.HTTP, "", ""
	return start(t, settings)
}

// TestBlockedHostIsRefusedBeforeAnythingIsFetched: the first word of a host that was blocked meanwhile is refused by every
// node, and no one connects to that host.
func TestBlockedHostIsRefusedBeforeAnythingIsFetched(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		blocked, first := startFediverse(t, 1), startFediverse(t, 1)
		s := start(t, instance.Settings{Database: database})
		nodes := []string{s.Settings.HTTP}
		if database != "" {
			nodes = append(nodes, secondNode(t, s).Settings.HTTP)
		}
		s.inbox("block", "add", "--reason", "spam", blocked.Host())
		s.inbox("block", "add", first.Host()) // the one who knows this one knows the other
		for _, node := range nodes {
			first.awaitStatus(s, node, "echo", http.StatusForbidden)
			before := s.rows()["turns"]
			if _, status := blocked.knock(s, node, "echo", 0, "hello"); status != http.StatusForbidden {
				t.Errorf("node %s answered a blocked host %d; want 403", node, status)
			}
			if after := s.rows()["turns"]; after != before {
				t.Errorf("%d turns are stored for a blocked host", after-before)
			}
		}
		if n := blocked.Connections(); n != 0 {
			t.Errorf("the server connected %d times to a host that was blocked before it wrote", n)
		}
		s.inbox("block", "remove", blocked.Host())
		for _, node := range nodes {
			blocked.awaitStatus(s, node, "echo", http.StatusAccepted)
		}
		if blocked.Connections() == 0 {
			t.Error("the host is let in again, yet its key was never read: the count above proves nothing")
		}
	})
}

// TestBlockStopsWhatIsUnderWay: what was accepted before is cancelled with the reason, and nothing is sent.
func TestBlockStopsWhatIsUnderWay(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		thinking, release := make(chan struct{}, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			thinking <- struct{}{}
			<-release
			return heard(message)
		})
		t.Cleanup(letGo) // the agent's server waits for it
		community := startFediverse(t, 1)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("memory", "")})
		mention, status := community.knock(s, s.Settings.HTTP, "memory", 0, "a slow question")
		if status != http.StatusAccepted {
			t.Fatalf("answered %d", status)
		}
		await.Receive(t, thinking, "the agent to be asked")
		if said := s.inbox("block", "add", "--dry-run", "*.elsewhere.test", community.Host()); !strings.Contains(said, "*.elsewhere.test would be on the block list; no accepted message") ||
			!strings.Contains(said, community.Host()+" would be on the block list; 1 accepted message would be cancelled for good, or dropped if held") {
			t.Errorf("the dry run says %s", said)
		}
		if listed, found := s.inbox("block", "list"), states(t, s.Instance); strings.Contains(listed, community.Host()) || len(found) != 1 || found[0] == exchange.StateCancelled {
			t.Errorf("the dry run left %v and the list %s", found, listed)
		}
		s.inbox("block", "add", "--reason", "spam", "*.elsewhere.test", community.Host())
		eventually(t, "the turn is cancelled", func() bool { // by the command, or by the server that heard of it first
			found := states(t, s.Instance)
			return len(found) == 1 && found[0] == exchange.StateCancelled
		})
		letGo()
		eventually(t, "the server is idle", func() bool { return s.rows()["jobs"] == 0 })
		if shown := s.inbox("show", mention.ActivityID); !strings.Contains(shown, "blocked by the operator: "+community.Host()+" (spam)") {
			t.Errorf("the reason is not shown:\n%s", shown)
		}
		if len(community.arrivals) != 0 {
			t.Errorf("the blocked host got %s", community.next(t))
		}
	})
}

// TestAllowListLetsInWhomItNames: with federation.mode = "allowlist" no one else is heard or contacted.
func TestAllowListLetsInWhomItNames(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		listed, stranger := startFediverse(t, 1), startFediverse(t, 1)
		s := start(t, instance.Settings{Database: database, Mode: "allowlist"})
		if _, status := listed.knock(s, s.Settings.HTTP, "echo", 0, "hello"); status != http.StatusForbidden || listed.Connections() != 0 {
			t.Errorf("before it is listed a host is answered %d and contacted %d times", status, listed.Connections())
		}
		s.inbox("allow", "add", listed.Host())
		listed.awaitStatus(s, s.Settings.HTTP, "echo", http.StatusAccepted)
		if _, answer := listed.ask(s, "echo", 0, "are you there?"); !strings.Contains(answer, "are you there?") {
			t.Errorf("the listed host is answered %s", answer)
		}
		if _, status := stranger.knock(s, s.Settings.HTTP, "echo", 0, "hello"); status != http.StatusForbidden {
			t.Errorf("a host that is not listed is answered %d; want 403", status)
		}
		if n := stranger.Connections(); n != 0 {
			t.Errorf("the server connected %d times to a host that is not listed", n)
		}
		s.inbox("allow", "remove", listed.Host())
		listed.awaitStatus(s, s.Settings.HTTP, "echo", http.StatusForbidden)
	})
}

const mastodonExport = "\ufeff#domain,#severity,#reject_media,#reject_reports,#public_comment,#obfuscate\r\n" +
	"sender.test,suspend,False,False,\"spam, and more\",False\r\n" +
	"quiet.test,silence,False,False,,False\r\n" +
	"fine.test,noop,True,False,,False\r\n" +
	"*.bad*.test,suspend,False,False,,False\r\n"

// TestBlockListIsImported: a list of Mastodon's becomes entries, and the server that runs keeps to them.
func TestBlockListIsImported(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		file := filepath.Join(t.TempDir(), "domain_blocks.csv")
		if err := os.WriteFile(file, []byte(mastodonExport), 0o600); err != nil {
			t.Fatal(err)
		}
		entries := func() (list []exchange.ListEntry) {
			t.Helper()
			if err := decodeList(p.inbox("block", "list", "--json"), &list); err != nil {
				t.Fatal(err)
			}
			return list
		}
		if said := p.inbox("block", "import", "--dry-run", file); !strings.Contains(said, "2 entries would be added") || len(entries()) != 0 {
			t.Errorf("a dry run says %s and leaves %v", said, entries())
		}
		if said := p.inbox("block", "import", file); !strings.Contains(said, "line 5:") || !strings.Contains(said, "2 entries added") {
			t.Errorf("the import says %s", said)
		}
		if said := p.inbox("block", "import", file); !strings.Contains(said, "0 entries added, 2 were there") {
			t.Errorf("the second import says %s", said)
		}
		found := map[string]string{}
		for _, entry := range entries() {
			found[entry.Target] = entry.Effect + " " + entry.Reason
		}
		if len(found) != 2 || found["*.sender.test"] != "refuse spam, and more" || found["*.quiet.test"] != "hold " {
			t.Errorf("the list is %v", found)
		}
		spam := load.Mail{From: "ann@sender.test", To: "echo@inbox.test", Subject: "Hi", Body: "hello?"}
		eventually(t, "mail from a blocked domain is refused", func() bool {
			spam.MessageID = fmt.Sprintf("%d@sender.test", time.Now().UnixNano())
			return strings.HasPrefix(p.put(spam), "550")
		})
		mail := load.Mail{From: "bob@quiet.test", To: "open@inbox.test", MessageID: "quiet@quiet.test", Subject: "Hi", Body: "hello?"}
		p.send("bob@quiet.test", "open@inbox.test", mail.Bytes())
		if state := p.state("quiet@quiet.test"); state != exchange.StateHeld {
			t.Errorf("mail of a silenced domain is %s; want held", state)
		}
	})
}

func TestHeldMailWaitsForTheOperator(t *testing.T) {
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
		if err := decodeList(p.inbox("held", "list", "--json"), &held); err != nil || len(held) != 2 {
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
	return s.apiWith(method, path, token, "")
}

func (s *server) apiWith(method, path, token, sent string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+"/api/v1"+path, strings.NewReader(sent))
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
	t.Parallel()
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

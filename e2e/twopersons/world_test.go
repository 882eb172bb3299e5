package twopersons

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/load"
	"inbox/engine/store"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// world is one server with its agents and everything around it. Runs share it and have people of their own.
type world struct {
	*inboxtest.Server
	ledger *ledger

	names    *load.Names
	homes    [2]*home
	platform *platform
	boss     *person
	keys     map[string]load.MailDomain // by the name of a part: keys are made once

	mu    sync.Mutex
	now   people   // of this run
	wire  []string // ids that were seen on any wire of this run
	talks []string // names of conversations, as agents are told them
	asked []asked  // approvals of which boss was told
	runs  int
}

const (
	mailDomain      = "inbox.test"
	connectorSecret = "a secret that only the tests know"
	platformMethod  = "urn:mentionable:auth:platform-mention:v0.1"
)

// newWorld starts a server on a database.
func newWorld(t *testing.T, database string) *world {
	t.Helper()
	w := &world{ledger: newLedger(), keys: map[string]load.MailDomain{}}
	var err error
	if w.names, err = load.NewNames(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.names.Close)

	sink, err := load.NewSink("127.0.0.1:0", w.mailArrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)

	program := httptest.NewServer(agent{w.ledger, w.told})
	t.Cleanup(program.Close)
	w.platform = newPlatform(t)
	for i := range w.homes {
		w.homes[i] = newHome(t, w)
	}

	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "inbox.toml")
	settings := strings.ReplaceAll(tables, "AGENT", program.URL) + fmt.Sprintf(`
[[connectors]]
name = "messenger"
secret = %q
agents = ["parrot", "memory", "shop", "clerk"]
[[trust]]
issuer = %q
methods = [%q]
assurance = ["platform"]
subject_prefixes = ["slack:T1/"]
`, connectorSecret, w.platform.issuer, platformMethod)
	head := fmt.Sprintf(`domain = %q
public_url = "http://%s"
federation = {allow_private = true}
dns = {resolver = %q}
mail = {mode = "smarthost", smarthost = %q, reply_all = true, reply_to = "signed", thread_tags = true, quote_lines = 5}
limits = {same_messages = 0, mail_thread = [], bot_turns = 100, bot_turns_per_thread = 100}
chat = {wait = "5s"}
`, mailDomain, web.Addr(), w.names.Address(), sink.URL())
	if err := os.WriteFile(file, []byte(head+settings), 0o600); err != nil {
		t.Fatal(err)
	}

	w.Server = inboxtest.New(t, file, "INBOX_DATABASE_URL="+database, "INBOX_SMTP_LISTEN=127.0.0.1:0", "INBOX_PUBLIC_URL=http://"+web.Addr().String())
	w.Inherit(socket{web})
	w.Serve()

	w.boss = w.newPerson("boss", nil)
	w.ledger.approver = w.boss
	return w
}

// socket is the HTTP listener, whose port has to be known before the server starts.
type socket struct{ net.Listener }

func (s socket) Take(name string) net.Listener {
	if name == "http" {
		return s.Listener
	}
	return nil
}

// newPerson makes a person with an address on each channel. Neighbours have theirs where the other one has theirs; the others have
// domains of their own.
func (w *world) newPerson(name string, neighbour *person) *person {
	w.Helper()
	p := &person{name: name, home: w.homes[0], badge: "T1/" + name}
	switch {
	case neighbour != nil:
		p.post, p.home = neighbour.post, neighbour.home
	case strings.HasPrefix(name, "eve"):
		p.post, p.home = w.domain(name), w.homes[1]
	default:
		p.post = w.domain(name)
	}
	p.mail = name + "@" + p.post.Name
	w.join(p)
	p.token = w.Token(name)

	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.addresses[p.mail] = p
	w.ledger.addresses[p.handle()] = p
	w.ledger.addresses[p.actor.ID] = p
	return p
}

// newPeople makes the people of a run, who were never here before.
func (w *world) newPeople(neighbours bool) people {
	w.runs++
	ann := w.newPerson(fmt.Sprint("ann", w.runs), nil)
	if neighbours {
		return people{ann, w.newPerson(fmt.Sprint("eve", w.runs), ann)}
	}
	return people{ann, w.newPerson(fmt.Sprint("eve", w.runs), nil)}
}

// see notes ids that travelled in plain sight.
func (w *world) see(ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wire = noted(w.wire, ids)
}

// told notes how a conversation is called towards agents.
func (w *world) told(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.talks = noted(w.talks, []string{name})
}

func noted(list, ids []string) []string {
	for _, id := range ids {
		if id != "" && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// quiet waits until the server has nothing to do.
func (w *world) quiet(t await.TB) {
	t.Helper()
	await.Until(t, "the server has nothing to do", func() bool {
		jobs, err := w.Store().Jobs(w.Context(), store.JobFilter{Limit: 100})
		if err != nil {
			return false
		}
		for _, job := range jobs {
			if job.State == "ready" || job.State == "running" {
				return false
			}
		}
		return true
	})
}

// platform vouches for the people of a messenger, as the operator lets it.
type platform struct {
	issuer string
	key    identity.SigningKey
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(identity.ConnectorCard(p.issuer, nil, []identity.PublicKey{p.key.Public()}, nil))
	}))
	t.Cleanup(server.Close)

	p.issuer = strings.TrimPrefix(server.URL, "http://")
	var err error
	if p.key, err = identity.NewSigningKey(p.issuer); err != nil {
		t.Fatal(err)
	}
	return p
}

// harvest returns the ids of a JSON document: what stands under a key that names one.
func harvest(document []byte) (ids []string) {
	var walk func(key string, value any)
	walk = func(key string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				walk(name, member)
			}
		case []any:
			for _, member := range value {
				walk(key, member)
			}
		case string:
			switch lower := strings.ToLower(key); {
			case strings.HasSuffix(lower, "id"), lower == "context", lower == "conversation", lower == "inreplyto", lower == "session":
				ids = append(ids, value)
			}
		}
	}
	var value any
	if json.Unmarshal(document, &value) == nil {
		walk("", value)
	}
	return ids
}

func readAll(response *http.Response) string {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

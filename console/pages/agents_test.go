package pages_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub"
	"inbox/engine/admission"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/bearer"
	"inbox/internal/catalog"
	"inbox/operator"
)

// agentsBrowser is a browser that is signed in at a running server.
type agentsBrowser struct {
	testing.TB

	url    string
	client *http.Client
}

// agentsSignIn signs a new operator in.
func agentsSignIn(s *inboxtest.Server, role exchange.Role) *agentsBrowser {
	s.Helper()
	secret, _, err := s.Operator().Tokens.CreateOperator(s.Context(), "ann-"+role.String(), role)
	if err != nil {
		s.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	b := &agentsBrowser{TB: s, url: s.URL, client: &http.Client{Jar: jar, Timeout: inboxtest.Client.Timeout}}
	b.post("/console/login", url.Values{"token": {secret}}, http.StatusOK)
	return b
}

func (b *agentsBrowser) answer(response *http.Response, err error, want int) string {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode != want {
		b.Fatalf("%s: %s, want %d:\n%s", response.Request.URL, response.Status, want, content)
	}
	return string(content)
}

func (b *agentsBrowser) get(path string, want int) string {
	b.Helper()
	response, err := b.client.Get(b.url + path)
	return b.answer(response, err, want)
}

// post sends a form and follows where it leads.
func (b *agentsBrowser) post(path string, form url.Values, want int) string {
	b.Helper()
	response, err := b.client.PostForm(b.url+path, form)
	return b.answer(response, err, want)
}

var agentsField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// act sends a form with the token of the session.
func (b *agentsBrowser) act(path string, want int, pairs ...string) string {
	b.Helper()
	found := agentsField.FindStringSubmatch(b.get("/console/agents", http.StatusOK))
	if found == nil {
		b.Fatal("the page has no token against forgery")
	}
	form := url.Values{"csrf": {found[1]}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.post(path, form, want)
}

func agentsHas(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(page, one) {
			t.Errorf("the page lacks %q:\n%s", one, page)
		}
	}
}

// agentsServer runs a server whose settings are in a file, so that agents can be added.
func agentsServer(t *testing.T) (server *inboxtest.Server, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "inbox.toml")
	document := `domain = "localhost:8080"

[federation]
allow_private = true

[[agents]]
name = "helper"
kind = "echo"
access = "rules"
unverified = "refuse"
summary = "<b>helps</b>"

[[agents.rules]]
effect = "deny"
address = "@mallory@example.org"

[[agents.rules]]
effect = "allow"
method = "urn:mentionable:auth:email-dmarc:v0.1"
address = "@*@example.org"
`
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return inboxtest.New(t, file).Serve(), file
}

func TestAgents(t *testing.T) {
	server, file := agentsServer(t)
	admin, reader := agentsSignIn(server, exchange.RoleAdmin), agentsSignIn(server, exchange.RoleRead)

	t.Run("are shown to all", func(t *testing.T) {
		agentsHas(t, reader.get("/console/agents", 200), "@helper@localhost:8080")
		page := reader.get("/console/agents/helper", 200)
		agentsHas(t, page, "/a2a/helper/.well-known/agent-card.json", "&lt;b&gt;helps&lt;/b&gt;", "deny, address @mallory@example.org")
		if strings.Contains(page, "/console/agents/helper/pause") || strings.Contains(page, "/console/agents/helper/say") {
			t.Error("a reader is offered acts")
		}
		reader.get("/console/agents/nobody", 404)
	})

	t.Run("are changed by admins alone", func(t *testing.T) {
		for _, path := range []string{"helper/pause", "helper/resume", "helper/key", "helper/follows", "helper/say", "helper/remove", "new", "tokens", "tokens/revoke"} {
			reader.act("/console/agents/"+path, 403, "name", "x", "kind", "echo", "scope", "admin", "text", "Hello")
		}
		reader.get("/console/agents/new", 403)
	})

	t.Run("rest", func(t *testing.T) {
		agentsHas(t, admin.act("/console/agents/helper/pause", 200, "reason", "<i>new</i> model"), "helper rests now.", "&lt;i&gt;new&lt;/i&gt; model")
		agentsHas(t, reader.get("/console/agents/helper/access?address=@ann@example.org&channel=email", 200), "Would be refused", "Pause of the agent")
		agentsHas(t, admin.act("/console/agents/helper/resume", 200), "helper works again.")
	})

	t.Run("let in by their rules", func(t *testing.T) {
		ask := func(query string) string { return reader.get("/console/agents/helper/access?"+query, 200) }
		agentsHas(t, ask("address=@ann@example.org&channel=email"), "Would be let in", "Rule 2", "Lets in")
		agentsHas(t, ask("address=@mallory@example.org&channel=email"), "Would be refused", "Rule 1", "Keeps out")
		agentsHas(t, ask("address=@ann@other.example&channel=email"), "Would be refused", "the sender has another address", "no rule lets the sender use message")
		agentsHas(t, ask("address=@ann@example.org"), "Would be refused", "Senders without proof")
		reader.get("/console/agents/helper/access?address=%3Cscript%3E", 400)

		in, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		reader.client.Jar.SetCookies(in, []*http.Cookie{{Name: catalog.Cookie, Value: "de"}})
		defer reader.client.Jar.SetCookies(in, []*http.Cookie{{Name: catalog.Cookie, MaxAge: -1}})
		agentsHas(t, ask("address=@ann@other.example&channel=email"), "localhost:8080 sagt: mailto:ann@other.example ist domain", "beim Absender stimmt nicht überein: address", "keine Regel öffnet dem Absender message")
		agentsHas(t, ask("address=@ann@example.org"), "nichts beweist, wer schreibt")
		agentsHas(t, reader.get("/console/agents/helper/access?address=%3Cscript%3E", 400), "ist keine Adresse; schreiben Sie eine wie @alice@example.org")

		if _, _, err := server.Operator().Lists.Add(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "@ann@example.org", Reason: "spam"}); err != nil {
			t.Fatal(err)
		}
		answer, err := server.Operator().Why(t.Context(), operator.AccessQuestion{Agent: "helper", Address: "@eve@example.org", Method: "email-dmarc"}, "")
		if err != nil || answer.Outcome != admission.Allowed || answer.Rule != 2 {
			t.Errorf("somebody else is %+v, %v", answer, err)
		}
	})

	t.Run("are tried", func(t *testing.T) {
		agentsHas(t, admin.act("/console/agents/helper/say", 403, "text", "Hello", "key", "k1"), "not open to you")
	})

	t.Run("are added and removed", func(t *testing.T) {
		plan := admin.get("/console/agents/new?name=second&kind=echo&access=public&summary=Repeats", 200)
		agentsHas(t, plan, "name = &#34;second&#34;", file)
		agentsHas(t, admin.get("/console/agents/new?name=third&kind=command", 200), "inbox agents add")
		agentsHas(t, admin.get("/console/agents/new?name=helper&kind=echo", 200), "is there already")
		agentsHas(t, admin.act("/console/agents/new", 200, "name", "second", "kind", "echo", "access", "public"), "second is there.", "@second@localhost:8080")

		turn := regexp.MustCompile(`/console/messages/[0-9a-f-]+`).FindString(admin.act("/console/agents/second/say", 200, "text", "Hello", "key", "k2"))
		if turn == "" {
			t.Error("a test leads to no message")
		}
		agentsHas(t, admin.get("/console/agents/second/remove", 200), "name = &#34;second&#34;")
		agentsHas(t, admin.act("/console/agents/second/remove", 200), "second is removed.")
		admin.get("/console/agents/second", 404)
		written, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(written), "second") {
			t.Errorf("the file is %s, %v", written, err)
		}
	})
}

func TestFollowsAreDecided(t *testing.T) {
	server, _ := agentsServer(t)
	reader, worker := agentsSignIn(server, exchange.RoleRead), agentsSignIn(server, exchange.RoleWork)
	for _, actor := range []string{"https://social.test/users/ann", "https://social.test/users/<b>bo"} {
		if err := server.Store().State().Put(t.Context(), activitypub.PendingNamespace+"helper", actor, []byte(`{}`), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}

	page := reader.get("/console/agents/helper", 200)
	agentsHas(t, page, "https://social.test/users/ann", "&lt;b&gt;bo")
	if strings.Contains(page, "/console/agents/helper/follows") {
		t.Error("a reader is offered to decide")
	}
	agentsHas(t, worker.get("/console/agents/helper", 200), "/console/agents/helper/follows")
	agentsHas(t, worker.act("/console/agents/helper/follows", 200, "actor", "https://social.test/users/ann", "accept", "true"), "follows helper now.")
	worker.act("/console/agents/helper/follows", 404, "actor", "https://social.test/users/nobody", "accept", "true")

	token, _, err := server.Operator().Tokens.CreateOperator(t.Context(), "worker", exchange.RoleWork)
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer := server.Read(http.MethodPost, "/api/v1/follows/decide", token, `{"agent":"helper","actor":"https://social.test/users/<b>bo","accept":false}`)
	if status != http.StatusNoContent {
		t.Errorf("the API answers %d %s", status, answer)
	}
}

func TestTokensOfTheConsole(t *testing.T) {
	server := inboxtest.Start(t)
	admin := agentsSignIn(server, exchange.RoleAdmin)

	page := admin.act("/console/agents/tokens", 200, "name", "partner", "scope", "peer", "expires", "90d")
	secret := regexp.MustCompile(`<code>([^<]{40,})</code>`).FindStringSubmatch(page)
	if secret == nil {
		t.Fatalf("the page shows no secret:\n%s", page)
	}
	if strings.Contains(admin.get("/console/agents/tokens", 200), secret[1]) {
		t.Error("the secret is shown twice")
	}
	if _, found, err := server.Operator().Tokens.ByHash(t.Context(), bearer.Hash(secret[1])); err != nil || !found {
		t.Errorf("the token is not known: %v", err)
	}
	admin.act("/console/agents/tokens", 400, "name", "partner", "scope", "everything")
	admin.act("/console/agents/tokens", 400, "name", "partner", "scope", "admin", "agent", "echo")

	made, err := server.Operator().Tokens.Select(t.Context(), operator.TokenFilter{Name: "partner"})
	if err != nil || len(made) != 1 {
		t.Fatalf("there are %v, %v", made, err)
	}
	agentsHas(t, admin.act("/console/agents/tokens/revoke", 200, "id", made[0].ID), "The token opens nothing any more.")
	agentsHas(t, admin.get("/console/agents/tokens?status=revoked", 200), "partner")
}

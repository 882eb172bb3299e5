package inbox_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox"
	"inbox/agents"
	"inbox/e2e/load"
	"inbox/engine/delivery"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/webtoken"
	"inbox/normalized"
	"inbox/operator"
)

const withMail = "INBOX_SMTP_LISTEN=127.0.0.1:0"

// fetch follows no redirects.
func fetch(t *testing.T, server *inboxtest.Server, path, accept string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: inboxtest.Client.Timeout,
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// TestDiscoveryAgrees follows an address the way peers do: WebFinger, then each link.
func TestDiscoveryAgrees(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t, withMail)
	response, body := fetch(t, server, "/.well-known/webfinger?resource=acct:ECHO@localhost:8080", "application/jrd+json")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"subject":"acct:echo@localhost:8080"`) {
		t.Fatalf("WebFinger: %d %s", response.StatusCode, body)
	}
	order := []string{"self", "https://mentionable.dev/ns/rel/agent-card", "http://webfinger.net/rel/profile-page", "mailto"}
	last := 0
	for _, rel := range order {
		at := strings.Index(body, `"rel":"`+rel+`"`)
		if at < last {
			t.Fatalf("link %s is missing or out of order: %s", rel, body)
		}
		last = at
	}
	for path, accept := range map[string]string{
		"/agents/echo": "application/activity+json", "/.well-known/agent-card/echo": "application/json", "/@echo": "text/html",
		"/a2a/echo/.well-known/agent-card.json": "application/json", "/.well-known/agent-card.json": "application/json",
		"/.well-known/host-meta": "*/*", "/.well-known/nodeinfo": "*/*", "/nodeinfo/2.1": "*/*", "/healthz": "*/*", "/readyz": "*/*", "/metrics": "*/*",
	} {
		if response, body := fetch(t, server, path, accept); response.StatusCode != http.StatusOK || body == "" {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	if response, _ := fetch(t, server, "/agents/echo", "text/html"); response.Header.Get("Location") != "http://localhost:8080/@echo" {
		t.Errorf("a browser at the actor gets %d to %q", response.StatusCode, response.Header.Get("Location"))
	}
}

// TestCardsTellOfActorAndPicture: cards name the actor, which is there, and the picture that the operator configured; both stand below
// the signature.
func TestCardsTellOfActorAndPicture(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	settings := "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n[agents.fediverse]\nicon = \"https://files.example/echo.png\"\n[[agents]]\nname = \"plain\"\nkind = \"echo\"\n"
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := inboxtest.New(t, file, "INBOX_DATABASE_URL="+database, "INBOX_FEDERATION_ALLOW_PRIVATE=true").Serve()
			var card, plain struct {
				Icon        map[string]string `json:"icon"`
				ActivityPub map[string]string `json:"activitypub"`
				IconURL     string            `json:"iconUrl"`
			}
			_, signed := fetch(t, server, "/.well-known/agent-card/echo", "application/json")
			_, a2aCard := fetch(t, server, "/a2a/echo/.well-known/agent-card.json", "application/json")
			_, other := fetch(t, server, "/.well-known/agent-card/plain", "application/json")
			for _, document := range []string{signed, a2aCard} {
				if err := json.Unmarshal([]byte(document), &card); err != nil {
					t.Fatal(document, err)
				}
			}
			if card.Icon["url"] != "https://files.example/echo.png" || card.Icon["mime"] != "image/png" || card.IconURL != card.Icon["url"] {
				t.Errorf("the picture is %v and %q", card.Icon, card.IconURL)
			}
			if err := json.Unmarshal([]byte(other), &plain); err != nil || plain.Icon["mime"] != "image/png" || plain.ActivityPub["actor"] != "http://localhost:8080/agents/plain" {
				t.Errorf("%v: the card of an agent without a picture is %s", err, other)
			}
			drawn, content := fetch(t, server, strings.TrimPrefix(plain.Icon["url"], "http://localhost:8080"), "image/*")
			if config, err := png.DecodeConfig(strings.NewReader(content)); err != nil || config.Width < 400 || drawn.Header.Get("ETag") == "" {
				t.Errorf("the picture that is drawn from an address: %d %v, %v", drawn.StatusCode, drawn.Header, err)
			}
			_, plainActor := fetch(t, server, "/agents/plain", "application/activity+json")
			_, plainFinger := fetch(t, server, "/.well-known/webfinger?resource=acct:plain@localhost:8080", "application/json")
			for name, document := range map[string]string{"actor": plainActor, "WebFinger": plainFinger} {
				if !strings.Contains(document, `"image/png"`) || !strings.Contains(document, plain.Icon["url"]) {
					t.Errorf("%s does not name the picture: %s", name, document)
				}
			}
			response, actor := fetch(t, server, strings.TrimPrefix(card.ActivityPub["actor"], "http://localhost:8080"), "application/activity+json")
			if response.StatusCode != http.StatusOK || !strings.Contains(actor, `"id":"`+card.ActivityPub["actor"]+`"`) {
				t.Errorf("the actor %v is %d %s", card.ActivityPub, response.StatusCode, actor)
			}

			_, published := fetch(t, server, "/.well-known/jwks.json", "application/json")
			if err := webtoken.VerifyCard([]byte(signed), []byte(published)); err != nil {
				t.Error(err)
			}
			forged := strings.Replace(signed, "echo.png", "mallory.png", 1)
			if err := webtoken.VerifyCard([]byte(forged), []byte(published)); !errors.Is(err, webtoken.ErrCardForged) {
				t.Errorf("a card with another picture: %v", err)
			}
		})
	}
}

// TestAdminListener: with a listener of its own the operator API and the metrics are there and nowhere else.
func TestAdminListener(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t, "INBOX_ADMIN_LISTEN=127.0.0.1:0", "INBOX_HTTP_INSIDE=192.0.2.1")
	content, err := os.ReadFile(filepath.Join(server.Config().DataDir, operator.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}

	status := func(base, path, token string) int {
		t.Helper()
		request, err := http.NewRequest(http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}

	public, own, token := "http://"+server.HTTPAddr().String(), "http://"+server.AdminAddr(), strings.TrimSpace(string(content))
	for _, check := range []struct {
		base, path, token string
		want              int
	}{
		{own, "/api/v1/turns/unknown", "", http.StatusUnauthorized}, {own, "/api/v1/held", token, http.StatusOK}, {own, "/metrics", "", http.StatusOK},
		{own, "/readyz", "", http.StatusOK}, {own, "/agents/echo", "", http.StatusNotFound}, {own, "/a2a/echo", "", http.StatusNotFound},
		{public, "/api/v1/held", token, http.StatusNotFound}, {public, "/metrics", token, http.StatusNotFound}, {public, "/readyz", "", http.StatusOK},
	} {
		if got := status(check.base, check.path, check.token); got != check.want {
			t.Errorf("%s%s: %d, want %d", check.base, check.path, got, check.want)
		}
	}
}

// TestMetricsByToken: an operator's token opens the metrics from anywhere, and no other token does.
func TestMetricsByToken(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t, "INBOX_HTTP_INSIDE=192.0.2.1")
	content, err := os.ReadFile(filepath.Join(server.Config().DataDir, operator.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"": 403, strings.TrimSpace(string(content)): 200, server.Token("peer"): 403, "unknown": 401} {
		if status, _, _ := server.Read(http.MethodGet, "/metrics", token, ""); status != want {
			t.Errorf("metrics by %q: %d, want %d", token, status, want)
		}
	}
}

// TestMetricsAnswerToOurNamesOnly: a page whose name leads to this machine (DNS rebinding) read the metrics in an operator's browser.
func TestMetricsAnswerToOurNamesOnly(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"at http.listen": nil, "at admin.listen": {"INBOX_ADMIN_LISTEN=127.0.0.1:0"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := inboxtest.Start(t, settings...)
			at := cmp.Or(server.AdminAddr(), server.HTTPAddr().String())
			content, err := os.ReadFile(filepath.Join(server.Config().DataDir, operator.AdminTokenFile))
			if err != nil {
				t.Fatal(err)
			}

			for host, want := range map[string]int{
				"127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "localhost": 200, "inbox.localhost:1": 200, "inbox:8080": 200,
				"attacker.example": 403, "attacker.example:8080": 403, "127.0.0.1.attacker.example": 403, "localhost.attacker.example.": 403, "0x7f.1": 403,
			} {
				for token, want := range map[string]int{"": want, strings.TrimSpace(string(content)): 200} {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/metrics", nil)
					if err != nil {
						t.Fatal(err)
					}
					request.Host = host
					if token != "" {
						request.Header.Set("Authorization", "Bearer "+token)
					}
					response, err := http.DefaultClient.Do(request)
					if err != nil {
						t.Fatal(err)
					}
					_ = response.Body.Close()
					if response.StatusCode != want {
						t.Errorf("metrics for the host %s with the token %q: %d, want %d", host, token, response.StatusCode, want)
					}
				}
			}
		})
	}
}

// TestRegisteredAgentAnswers embeds the server with an agent of its own.
func TestRegisteredAgentAnswers(t *testing.T) {
	t.Parallel()
	server := inboxtest.New(t, "")
	shout := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		text := strings.ToUpper(normalized.PlainText(turn.Message.Parts))
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text(text)}})
	})
	if err := server.Register(exchange.AgentProfile{Name: "shout", DisplayName: "Shout"}, shout, agents.Settings{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Register(exchange.AgentProfile{Name: "Shout"}, shout, agents.Settings{}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the same name again: %v", err)
	}
	server.Serve()
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	if status, _, answer := server.Read(http.MethodPost, "/a2a/shout", server.Token("peer"), body, "A2A-Version", "1.0"); !strings.Contains(answer, "HELLO") {
		t.Errorf("answer %d %s", status, answer)
	}
}

// TestRemovedAgentInWebFinger: an agent whose keys are here, and who is not, is gone.
func TestRemovedAgentInWebFinger(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t)
	if err := server.Store().State().Put(t.Context(), "activitypub.key", "rsa:former", []byte("{}"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"former": http.StatusGone, "nobody": http.StatusNotFound, "echo": http.StatusOK} {
		if response, body := fetch(t, server, "/.well-known/webfinger?resource=acct:"+name+"@localhost:8080", "*/*"); response.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", name, response.StatusCode, body, want)
		}
	}
}

// TestAgeOfAnAccount: other servers judge an account by its age, so the actor shows when its agent was first configured, the
// same after a restart, and for each agent its own.
func TestAgeOfAnAccount(t *testing.T) {
	t.Parallel()
	settings := []string{"INBOX_DATA_DIR=" + t.TempDir(), "INBOX_AGENTS_0_NAME=Echo", "INBOX_AGENTS_0_KIND=echo"}
	var published time.Time
	start := func(name string, judge func(t *testing.T, server *inboxtest.Server)) {
		t.Run(name, func(t *testing.T) {
			server := inboxtest.Start(t, settings...)
			var actor struct{ Published time.Time }
			_, body := fetch(t, server, "/agents/Echo", "application/activity+json")
			if err := json.Unmarshal([]byte(body), &actor); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			published = actor.Published
			judge(t, server)
		})
	}

	begin := time.Now().Truncate(time.Second)
	var first time.Time
	start("first start", func(t *testing.T, _ *inboxtest.Server) {
		if first = published; first.Before(begin) || first.After(time.Now()) {
			t.Errorf("published %v at a first start after %v", first, begin)
		}
	})

	earlier := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	start("restart", func(t *testing.T, server *inboxtest.Server) {
		if !published.Equal(first) {
			t.Errorf("published %v after a restart; want %v", published, first)
		}
		if err := server.Store().State().Put(t.Context(), inbox.SinceNamespace, "echo", []byte(earlier.Format(time.RFC3339)), time.Time{}); err != nil {
			t.Fatal(err)
		}
	})
	start("an older agent", func(t *testing.T, _ *inboxtest.Server) {
		if !published.Equal(earlier) {
			t.Errorf("published %v; want %v", published, earlier)
		}
	})
}

// stranger is a mail whose sender proved nothing.
func stranger(id string) exchange.Inbound {
	return exchange.Inbound{
		Original: []byte("original of " + id), Channel: normalized.ViaEmail,
		Route: []byte(`{"v":1,"local":"echo","from":{"name":"","address":"ana@peer.test"},"verified":false}`),
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: id, Recipient: "@echo@localhost:8080", ReceivedVia: normalized.ViaEmail,
			Sender:     normalized.Sender{Address: identity.Stated("@ana@peer.test"), AuthMethod: normalized.AuthNone},
			Parts:      []normalized.Part{normalized.Text("hello " + id)},
			ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "message/rfc822"},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
			},
		},
	}
}

func TestHeldMessages(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t, withMail, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold")
	operator := server.Operator()
	ids := map[string]string{}
	for _, name := range []string{"one", "two"} {
		receipt, err := server.Pipeline().Receive(t.Context(), stranger(name))
		if err != nil || receipt.State != exchange.StateHeld {
			t.Fatalf("%s: %+v, %v", name, receipt, err)
		}
		ids[name] = receipt.TurnID
	}
	held, err := operator.Held.List(t.Context(), "echo", "", 10)
	if err != nil || len(held) != 2 {
		t.Fatalf("held %v, %v", held, err)
	}
	if other, err := operator.Held.List(t.Context(), "other", "", 10); err != nil || other == nil || len(other) != 0 {
		t.Errorf("held for another agent: %v, %v", other, err)
	}
	if err := operator.Held.Release(t.Context(), ids["one"]); err != nil {
		t.Fatal(err)
	}
	if err := operator.Held.Drop(t.Context(), ids["two"], "spam"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": exchange.StateAnswered, "two": exchange.StateRefused} {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		turn, err := server.Pipeline().Wait(ctx, ids[name])
		cancel()
		if err != nil || turn.State != want {
			t.Errorf("%s: %s (%s), %v", name, turn.State, turn.Reason, err)
		}
	}
	if err := operator.Held.Drop(t.Context(), ids["one"], "late"); !fault.Is(err, fault.Conflict) {
		t.Errorf("dropping what was released: %v", err)
	}
	if err := operator.Held.Release(t.Context(), "019a0000-0000-7000-8000-000000000000"); !fault.Is(err, fault.NotFound) {
		t.Errorf("releasing nothing: %v", err)
	}
}

// TestFilesOfADeadProcessGo: a file whose process died before its message was stored goes with the next sweep, after a day. Files of a mail
// that waits for the operator stay, and so do those that were put lately.
func TestFilesOfADeadProcessGo(t *testing.T) {
	t.Parallel()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	text := fmt.Sprintf(`
domain = "inbox.test"
dns = { resolver = %q }
federation = { allow_private = true }
[[agents]]
name = "patient"
kind = "echo"
unverified = "hold"
`, names.Address())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := inboxtest.New(t, file, withMail).Serve()
	if err := bringFiles(server, "patient", "wanted"); err != nil {
		t.Fatal(err)
	}
	kept := filesBelow(t, server)
	blobs, err := blob.OpenFiles(filepath.Join(server.Config().DataDir, "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.Stage(t.Context(), []byte("put by a process that died")); err != nil {
		t.Fatal(err)
	}
	if all := filesBelow(t, server); len(kept) == 0 || len(all) <= len(kept) {
		t.Fatalf("%d files after the mail that waits, %d in all", len(kept), len(all))
	}
	sweep := func(want int) {
		t.Helper()
		if err := server.Store().State().Delete(t.Context(), inbox.SweptNamespace, inbox.SweptKey); err != nil { // it was swept at the start
			t.Fatal(err)
		}
		if err := server.SweepOrphans(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := filesBelow(t, server); len(left) != want {
			t.Errorf("%d files are left, want %d", len(left), want)
		}
	}
	all := filesBelow(t, server)
	sweep(len(all))
	for _, path := range all {
		old := time.Now().Add(-2 * inbox.OrphanIdle)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.SweepOrphans(t.Context()); err != nil || len(filesBelow(t, server)) != len(all) {
		t.Errorf("swept although another node did just now: %v", err)
	}
	sweep(len(kept))
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a file of the mail that waits is gone: %v", err)
		}
	}
}

// bringFiles brings a mail with two files that are too large to stand in the message itself.
func bringFiles(server *inboxtest.Server, agent, what string) error {
	return bringFilesFrom(server, "ann@sender.test", agent, what)
}

func bringFilesFrom(server *inboxtest.Server, from, agent, what string) error {
	sender, err := load.DialMail(server.MailAddr())
	if err != nil {
		return err
	}
	defer sender.Close()
	var mail strings.Builder
	fmt.Fprintf(&mail, "From: %s\r\nTo: %s@inbox.test\r\nSubject: Files\r\nMessage-ID: <%s@sender.test>\r\nMIME-Version: 1.0\r\n", from, agent, what)
	mail.WriteString("Content-Type: multipart/mixed; boundary=cut\r\n\r\n--cut\r\nContent-Type: text/plain\r\n\r\nlook\r\n")
	for n := range 2 {
		fmt.Fprintf(&mail, "--cut\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=f%d\r\nContent-Transfer-Encoding: base64\r\n\r\n", n)
		content := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprint(what, n, " "), 40_000)))
		for len(content) > 76 {
			mail.WriteString(content[:76] + "\r\n")
			content = content[76:]
		}
		mail.WriteString(content + "\r\n")
	}
	mail.WriteString("--cut--\r\n")
	return sender.Send(from, agent+"@inbox.test", []byte(mail.String()))
}

// filesBelow returns the paths of the kept contents.
func filesBelow(t *testing.T, server *inboxtest.Server) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(server.Config().DataDir, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && len(entry.Name()) == 64 {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestOperatorIsToldOfReports: they are counted for the digest, and all of them are on record; what is told leaves through the ordinary
// deliveries.
func TestOperatorIsToldOfReports(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t, withMail, "INBOX_OPERATOR_CONTACT=ops@elsewhere.example", "INBOX_OPERATOR_NOTIFY=mailto:ops@elsewhere.example", "INBOX_OPERATOR_NAME=Example Org")
	for range 3 {
		record := exchange.AuditRecord{At: time.Now(), Code: "report:activitypub", Agent: "echo", Principal: "x https://peer.example/actor", Detail: "it is spam"}
		if err := server.Report(t.Context(), record); err != nil {
			t.Fatal(err)
		}
	}
	records, err := server.Store().AuditRecords(t.Context(), exchange.AuditFilter{Code: "report:*", Limit: 10})
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records %v", len(records), err)
	}
	pending, err := server.Operator().Notices.Pending(t.Context())
	if err != nil || len(pending.Counted) != 1 || pending.Counted[0].Kind != exchange.NoticeReport || pending.Counted[0].Count != 3 || pending.Counted[0].Examples[0].Note != "it is spam" {
		t.Fatalf("the digest will have %+v, %v", pending, err)
	}
	told, err := server.Operator().Notices.Test(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if told, err = server.Operator().Notices.Outcome(t.Context(), told.ID, time.Minute); err != nil || told.Ways[0].State != delivery.StateDelivered {
		t.Fatalf("%+v %v", told, err)
	}
	var sent []delivery.Record
	await.Until(t, "the mail is delivered", func() bool {
		if sent, err = server.Store().Deliveries(t.Context(), delivery.Filter{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		return len(sent) > 0 && sent[0].State == delivery.StateDelivered
	})
	_, reply, err := server.Store().Deliverer().Delivery(t.Context(), sent[0].ID)
	if err != nil || len(sent) != 1 || !strings.Contains(sent[0].Address, "ops@elsewhere.example") ||
		!strings.Contains(reply.Response.Parts[0].Content, "This is a test") {
		t.Errorf("%d deliveries, to %s: %+v %v", len(sent), sent[0].Address, reply.Response.Parts, err)
	}
	if _, page := fetch(t, server, "/@echo", "text/html"); !strings.Contains(page, `href="mailto:ops@elsewhere.example"`) || !strings.Contains(page, "Example Org") {
		t.Errorf("the profile does not say who operates the server:\n%s", page)
	}
	if _, card := fetch(t, server, "/a2a/echo/.well-known/agent-card.json", "application/json"); !strings.Contains(card, "ops@elsewhere.example") || !strings.Contains(card, "Example Org") {
		t.Errorf("the card does not say who operates the server:\n%s", card)
	}
}

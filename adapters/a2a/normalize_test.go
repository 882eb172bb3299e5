package a2a

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/internal/httpserver"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

// TestForeignTasksAreMissing asks with every operation for a task that is another owner's, for a task of the same
// principal with another agent, and for one that does not exist: the answers must be the same bytes.
func TestForeignTasksAreMissing(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	interrupted := b.rpc(b.ada, "SendMessage", message("m1", "buy"))
	task, contextID := interrupted.text(t, "result.task.id"), interrupted.text(t, "result.task.contextId")
	ended := b.rpc(b.ada, "SendMessage", follow("m2", task, "")).text(t, "result.task.id")
	open := b.rpc(b.ada, "SendMessage", message("m3", "buy")).text(t, "result.task.id")
	missing := newID()
	missingContext := missing + strings.Repeat("0", tagLength+1)
	missingContext = missing + "." + missingContext[:tagLength]

	ask := func(agent, token, method, params string) reply {
		return b.do("POST", "/a2a/"+agent, token, call10(method, params))
	}
	for _, c := range []struct{ method, params, context string }{
		{"GetTask", `{"id":"%s"}`, ""},
		{"CancelTask", `{"id":"%s"}`, ""},
		{"SubscribeToTask", `{"id":"%s"}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","taskId":"%s","parts":[{"text":"x"}]}}`, ""},
		{"SendStreamingMessage", `{"message":{"messageId":"x","role":"ROLE_USER","taskId":"%s","parts":[{"text":"x"}]}}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","referenceTaskIds":["%s"],"parts":[{"text":"x"}]}}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","contextId":"%s","parts":[{"text":"x"}]}}`, contextID},
		{"SendStreamingMessage", `{"message":{"messageId":"x","role":"ROLE_USER","contextId":"%s","parts":[{"text":"x"}]}}`, contextID},
		{"ListTasks", `{"contextId":"%s"}`, contextID},
		{"GetTaskPushNotificationConfig", `{"taskId":"%s","id":"x"}`, ""},
		{"ListTaskPushNotificationConfigs", `{"taskId":"%s"}`, ""},
		{"CreateTaskPushNotificationConfig", `{"taskId":"%s","url":"https://x.test"}`, ""},
		{"DeleteTaskPushNotificationConfig", `{"taskId":"%s","id":"x"}`, ""},
		{"tasks/get", `{"id":"%s"}`, ""},
		{"tasks/cancel", `{"id":"%s"}`, ""},
		{"tasks/resubscribe", `{"id":"%s"}`, ""},
		{"message/send", `{"message":{"kind":"message","messageId":"x","role":"user","taskId":"%s","parts":[{"kind":"text","text":"x"}]}}`, ""},
		{"message/stream", `{"message":{"kind":"message","messageId":"x","role":"user","taskId":"%s","parts":[{"kind":"text","text":"x"}]}}`, ""},
		{"tasks/pushNotificationConfig/list", `{"id":"%s"}`, ""},
	} {
		targets, absent := []string{ended, open}, missing
		if c.context != "" {
			targets, absent = []string{c.context}, missingContext
		}
		for _, target := range targets {
			want := ask("echo", b.bob, c.method, fmt.Sprintf(c.params, absent))
			for who, got := range map[string]reply{
				"another principal": ask("echo", b.bob, c.method, fmt.Sprintf(c.params, target)),
				"another agent":     ask("other", b.ada, c.method, fmt.Sprintf(c.params, target)),
			} {
				if diff := cmp.Diff(want.body, got.body); diff != "" || got.status != want.status {
					t.Errorf("%s of %s (-missing +foreign):\n%s", c.method, who, diff)
				}
				if strings.Contains(got.body, `"result"`) && c.method != "ListTasks" {
					t.Errorf("%s of %s: %s", c.method, who, got.body)
				}
			}
		}
	}
	for _, path := range []string{"/rest/tasks/", "/v1/tasks/"} {
		want, got := b.do("GET", "/a2a/echo"+path+missing, b.bob, ""), b.do("GET", "/a2a/echo"+path+ended, b.bob, "")
		if want.status != 404 || got.status != 404 || want.body != got.body {
			t.Errorf("%s: %d %s, missing: %d %s", path, got.status, got.body, want.status, want.body)
		}
	}
	if listed := b.rpc(b.bob, "ListTasks", "{}"); listed.at(t, "result.totalSize") != 0.0 {
		t.Errorf("bob sees %s", listed.body)
	}
	if b.engine.receives != 3 {
		t.Errorf("%d turns, want the owner's 3", b.engine.receives)
	}
}

func TestTheSameContextNameOfTwoPrincipalsIsTwoThreads(t *testing.T) {
	b := setup(t)
	send := `{"message":{"messageId":"m","role":"ROLE_USER","contextId":"general","parts":[{"text":"x"}]}}`
	for _, token := range []string{b.ada, b.bob} {
		if got := b.rpc(token, "SendMessage", send).text(t, "result.task.contextId"); got != "general" {
			t.Errorf("context %q", got)
		}
	}
	threads := map[string]bool{}
	for _, turn := range b.engine.turns {
		threads[turn.ThreadID] = true
	}
	if len(threads) != 2 {
		t.Errorf("threads %v", threads)
	}
	minted := b.rpc(b.ada, "SendMessage", message("m2", "x")).text(t, "result.task.contextId")
	again := `{"message":{"messageId":"m3","role":"ROLE_USER","contextId":"` + minted + `","parts":[{"text":"x"}]}}`
	if got := b.rpc(b.ada, "SendMessage", again).text(t, "result.task.contextId"); got != minted {
		t.Errorf("own minted context became %q", got)
	}
	if got := b.rpc(b.ada, "ListTasks", `{"contextId":"`+minted+`"}`); got.at(t, "result.totalSize") != 2.0 {
		t.Errorf("tasks of the context: %s", got.body)
	}
}

// TestPartsSurviveTheWay takes parts from the wire to ours and back.
func TestPartsSurviveTheWay(t *testing.T) {
	b := setup(t)
	name := rapid.StringMatching(`[a-z]{0,8}`)
	part := rapid.Custom(func(t *rapid.T) *a2a.Part {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return &a2a.Part{Content: a2a.Text(rapid.String().Draw(t, "text")), MediaType: "text/plain"}
		case 1:
			return &a2a.Part{Content: a2a.Text(rapid.String().Draw(t, "text")), MediaType: "text/markdown"}
		case 2:
			content := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			return &a2a.Part{Content: a2a.Raw(content), MediaType: "image/png", Filename: name.Draw(t, "name")}
		case 3:
			return &a2a.Part{Content: a2a.Data{Value: map[string]any{"k": name.Draw(t, "value")}}, MediaType: "application/json"}
		default:
			address := "https://x.test/" + name.Draw(t, "path")
			return &a2a.Part{Content: a2a.URL(address), MediaType: rapid.SampledFrom([]string{"text/html", "image/png"}).Draw(t, "type")}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		sent := a2a.ContentParts(rapid.SliceOfN(part, 1, 5).Draw(t, "parts"))
		ours, err := b.adapter.normalizeParts(b.Context(), sent)
		if err != nil {
			t.Fatal(err)
		}
		back, err := b.adapter.renderParts(b.Context(), ours, true)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sent {
			if raw, ok := sent[i].Content.(a2a.Raw); ok && bytes.Equal(raw, back[i].Raw()) {
				back[i].Content = raw // an empty file is nil or of no length
			}
		}
		if diff := cmp.Diff(sent, back); diff != "" {
			t.Fatalf("-sent +back:\n%s", diff)
		}
	})
}

// FuzzRPC posts anything: the answer is always JSON-RPC, never a defect of ours, and never has Go's words in it.
func FuzzRPC(f *testing.F) {
	for _, seed := range []string{
		call10("SendMessage", message("m1", "hello")), call10("ListTasks", "{}"), call10("GetTask", `{"id":7}`), `[]`, `{`, ``,
		call10("SendStreamingMessage", message("m2", "hello")), call10("tasks/resubscribe", `{"id":"x"}`),
		`{"jsonrpc":"2.0","id":1e400,"method":"GetTask","params":{"id":"x"}}`,
		call10("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":null}]}}`),
		call10("message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"%%"}}]}}`),
		call10("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"mentionable":{"agent_chain":[]}}}}`),
	} {
		f.Add([]byte(seed))
	}
	e := newEngine("echo")
	token := e.token("ada", "")
	adapter, err := New(Options{
		Domain: "agents.test", PublicURL: "https://agents.test", Receiver: e, Directory: e, Turns: e, Runs: e, Tokens: e, Claims: e,
		Blobs: noBlobs{},
	})
	if err != nil {
		f.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Options{Routes: adapter.Routes(), WithoutHealth: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.running.Wait)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/a2a/echo", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError || strings.Contains(w.Body.String(), "Go struct") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("not JSON: %s", w.Body)
		}
	})
}

// noBlobs panics when a message is large enough to need the blob store.
type noBlobs struct{ Blobs }

// TestHostileHTMLPartsCostTheirLength: a text/html part had no bound at all.
func TestHostileHTMLPartsCostTheirLength(t *testing.T) {
	for name, source := range markuptest.HTML(128 << 10) {
		t.Run(name, func(t *testing.T) {
			markuptest.Check(t, len(source), func() { normalizeText(source, "text/html; charset=utf-8") })
		})
	}
}

func TestHTMLPartsBecomeMarkdown(t *testing.T) {
	part := normalizeText("<h1>Plan</h1><blockquote>old</blockquote><ul><li><b>one</b></li></ul>", "text/html")
	if part.MIME != normalized.MIMEMarkdown || part.Content != "# Plan\n\n> old\n\n- **one**" {
		t.Errorf("%+v", part)
	}
	if long := normalizeText(strings.Repeat("<p>word</p>", 100_000), "text/html"); !strings.Contains(long.Content, "The text was cut") || len(long.Content) > 600<<10 {
		t.Errorf("%d bytes, without a word that the rest is missing", len(long.Content))
	}
}

package a2a

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/internal/httpserver"
)

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
type noBlobs struct{ exchange.Blobs }

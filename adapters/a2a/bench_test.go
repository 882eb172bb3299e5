package a2a

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/internal/blob"
	"inbox/internal/httpserver"
)

// BenchmarkSend is one blocking send answered by echo: router, token, binding, the message in and the task out, without
// sockets and without a store on disk.
func BenchmarkSend(b *testing.B) {
	for _, c := range []struct{ name, path, body string }{
		{"jsonrpc-1.0", "/a2a/echo", call10("SendMessage", `{"message":{"messageId":"%s","role":"ROLE_USER","parts":[{"text":"hello"}]}}`)},
		{"jsonrpc-0.3", "/a2a/echo", call10("message/send", `{"message":{"kind":"message","messageId":"%s","role":"user","parts":[{"kind":"text","text":"hello"}]}}`)},
		{"rest-1.0", "/a2a/echo/rest/message:send", `{"message":{"messageId":"%s","role":"ROLE_USER","parts":[{"text":"hello"}]}}`},
		{"stream-1.0", "/a2a/echo", call10("SendStreamingMessage", `{"message":{"messageId":"%s","role":"ROLE_USER","parts":[{"text":"hello"}]}}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			handler, token := benchmarked(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(fmt.Sprintf(c.body, fmt.Sprint("m", i))))
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "TASK_STATE_COMPLETED") && c.name != "jsonrpc-0.3" {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}

func benchmarked(b *testing.B) (handler http.Handler, token string) {
	e := newEngine("echo")
	blobs, err := blob.OpenFiles(b.TempDir(), blob.Options{})
	if err != nil {
		b.Fatal(err)
	}
	adapter, err := New(Options{
		Domain: "agents.test", PublicURL: "https://agents.test", Receiver: e, Directory: e, Turns: e, Runs: e, Tokens: e,
		Claims: e, Blobs: blobs,
	})
	if err != nil {
		b.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Options{Routes: adapter.Routes(), WithoutHealth: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.running.Wait)
	return server.Handler(), e.token("ada", "")
}

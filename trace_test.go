package inbox_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/telemetry/telemetrytest"
	"inbox/normalized"
)

// tracingServer starts a server with one agent whose spans go to the receiver.
func tracingServer(t *testing.T, receiver *telemetrytest.Receiver, address, service, agent string) *inboxtest.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte("[[agents]]\n"+agent), 0o600); err != nil {
		t.Fatal(err)
	}
	return inboxtest.New(t, file, "INBOX_FEDERATION_ALLOW_PRIVATE=true", "INBOX_HTTP_LISTEN="+address, "INBOX_PUBLIC_URL=http://"+address,
		"INBOX_TELEMETRY_OTLP_ENDPOINT="+receiver.URL, "INBOX_TELEMETRY_SERVICE="+service).Serve()
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// TestOneTraceCrossesTwoServers: an A2A message to one server, whose agent is elsewhere, on another server, whose agent is a webhook.
func TestOneTraceCrossesTwoServers(t *testing.T) {
	t.Parallel()
	told := make(chan string, 8)
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		told <- r.Header.Get("Traceparent")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(normalized.Response{Parts: []normalized.Part{normalized.Text("42, gladly")}})
	}))
	t.Cleanup(webhook.Close)

	receiver := telemetrytest.Start(t)
	near, far := freePort(t), freePort(t)
	tracingServer(t, receiver, far, "two", "name = \"worker\"\nkind = \"webhook\"\naccess = \"verified\"\n[agents.webhook]\nurl = \""+webhook.URL+"\"\nsecret = \"0123456789abcdef0123456789abcdef\"\n")
	one := tracingServer(t, receiver, near, "one", "name = \"passer\"\nkind = \"remote\"\n[agents.remote]\ncard_url = \"http://"+far+"/a2a/worker/.well-known/agent-card.json\"\n")

	const traceID, callerID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	status, _, body := one.Read(http.MethodPost, "/a2a/passer", one.Token("ann"),
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"six times seven?"}]}}}`,
		"Traceparent", "00-"+traceID+"-"+callerID+"-01")
	if status != http.StatusOK || !strings.Contains(body, "42, gladly") {
		t.Fatalf("%d %s", status, body)
	}

	header := strings.Split(await.Receive(t, told, "the webhook is asked"), "-")
	if len(header) != 4 || header[1] != traceID || header[3] != "01" {
		t.Fatalf("the webhook was told traceparent %q", header)
	}

	// The way up from the webhook to the caller; each name stands for a span whose parent is the next one.
	way := []string{"two POST", "two run", "two accept", "one POST", "one run", "one accept"}
	await.Until(t, "the spans of both servers", func() bool {
		byID := map[string]telemetrytest.Span{}
		for _, span := range receiver.Spans() {
			byID[span.ID] = span
		}
		id := header[2]
		for _, want := range way {
			span, arrived := byID[id]
			if !arrived {
				return false
			}
			if span.Service+" "+span.Name != want || span.Trace != traceID || span.Failed {
				t.Fatalf("in the place of %q: %+v", want, span)
			}
			id = span.Parent
		}
		if id != callerID {
			t.Fatalf("the first span is below %q", id)
		}
		return true
	})
	for _, span := range receiver.Spans() {
		if encoded, _ := json.Marshal(span); strings.Contains(string(encoded), "six times") || strings.Contains(string(encoded), "gladly") {
			t.Errorf("a span has words of the message: %s", encoded)
		}
	}
}

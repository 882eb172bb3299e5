package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/golden"
	"inbox/internal/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a server with two agents and two principals, reached over a real connection.
type bundle struct {
	*testing.T
	engine   *engine
	adapter  *Adapter
	url      string
	client   *http.Client
	ada, bob string // tokens
	log      *bytes.Buffer
}

func setup(t *testing.T, change ...func(*Options)) *bundle {
	t.Helper()
	b := &bundle{T: t, engine: newEngine("echo", "other"), log: &bytes.Buffer{}}
	b.ada, b.bob = b.engine.token("ada", ""), b.engine.token("bob", "")
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.engine.blobs = blobs
	logger := slog.New(slog.NewTextHandler(b.log, nil))
	options := Options{
		Domain: "agents.test", PublicURL: "https://agents.test", Receiver: b.engine, Directory: b.engine, Turns: b.engine,
		Runs: b.engine, Tokens: b.engine, Claims: b.engine, Blobs: blobs, Logger: logger,
	}
	for _, f := range change {
		f(&options)
	}
	if b.adapter, err = New(options); err != nil {
		t.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Options{Routes: b.adapter.Routes(), WithoutHealth: true, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	b.url, b.client = web.URL, web.Client()
	b.client.Timeout = 2 * await.Patience // also of streams
	t.Cleanup(func() {
		b.engine.stop()
		b.client.CloseIdleConnections()
		web.Close()
		await.Done(t, b.engine.running.Wait, "the end of the agent's runs")
	})
	return b
}

// ended waits for the end of the turn that came last.
func (b *bundle) ended() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), await.Patience)
	defer cancel()
	if _, err := b.engine.Wait(ctx, b.engine.newestTurn()); err != nil {
		b.Fatalf("waited for the end of the turn: %v", err)
	}
}

// reply is what came back over the wire.
type reply struct {
	status int
	header http.Header
	body   string
}

func (b *bundle) do(method, path, token, body string, header ...string) reply {
	b.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(content)}
}

// rpc posts a JSON-RPC request with the id 1.
func (b *bundle) rpc(token, method, params string, header ...string) reply {
	b.Helper()
	return b.do("POST", "/a2a/echo", token, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, header...)
}

// answered is a JSON-RPC response of either kind.
type answered struct {
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    []map[string]any
	}
}

func (r reply) decode(t testing.TB) answered {
	t.Helper()
	var a answered
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	return a
}

// at reads a value by dotted path; list members by number.
func (r reply) at(t testing.TB, path string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(r.body), &value); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	for key := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[key]
		case []any:
			if key == "#" {
				value = float64(len(inner))
				continue
			}
			i := int(key[0] - '0')
			if i >= len(inner) {
				return nil
			}
			value = inner[i]
		default:
			return nil
		}
	}
	return value
}

func (r reply) text(t testing.TB, path string) string {
	t.Helper()
	text, _ := r.at(t, path).(string)
	return text
}

// frames are the data lines of an event stream.
func (r reply) frames() []reply {
	var list []reply
	for line := range strings.SplitSeq(r.body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, reply{body: data})
		}
	}
	return list
}

func message(id, text string) string {
	return `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}`
}

// changing are the values that differ from run to run; the same value gets the same name.
var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(\.[0-9a-f]{16})?|\d{4}-\d\d-\d\dT[\d:.]+Z`)

func steady(body string) string {
	names := map[string]string{}
	return changing.ReplaceAllStringFunc(body, func(found string) string {
		if strings.HasSuffix(found, "Z") {
			return "TIME"
		}
		if names[found] == "" {
			names[found] = "ID" + string(rune('A'+len(names)))
		}
		return names[found]
	})
}

// compare compares a body with testdata/name; JSON is indented, streams are taken as they are without event ids.
func compare(t *testing.T, name, body string) {
	t.Helper()
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(body), "", "  ") == nil {
		body = indented.String()
	}
	body = steady(regexp.MustCompile(`(?m)^id: .*\n`).ReplaceAllString(body, ""))
	golden.Compare(t, name, []byte(body))
}

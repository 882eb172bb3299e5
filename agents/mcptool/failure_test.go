package mcptool

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/await"
	"inbox/internal/safehttp"
)

func TestCrashedProgramComesBack(t *testing.T) {
	source := start(t, quick(t), peer("peer", "tools"))
	before := names(t, source)
	pid := result(t, source, "peer/pid", nil)
	child := result(t, source, "peer/spawn", nil)
	text := wantFailure(t, call(t, source, "peer/crash", nil), kindUnknown)
	if !strings.Contains(text, "may have run") {
		t.Errorf("the model does not learn that the call may have run: %s", text)
	}
	await.Until(t, "the state says why", func() bool {
		status := source.Status()[0]
		return status.Connected || strings.Contains(status.Reason, "exit status 3") && strings.Contains(status.Reason, "cruel world")
	})
	if diff := cmp.Diff(before, names(t, source)); diff != "" {
		t.Errorf("tools changed while the server was away: %s", diff)
	}
	again := result(t, source, "peer/pid", nil) // waits for the new connection
	if again == pid {
		t.Error("the same process answers")
	}
	await.Until(t, "no zombie and no child is left", func() bool { return gone(pid) && gone(child) })
}

func TestCloseLeavesNoProcess(t *testing.T) {
	for _, role := range []string{"tools", "deaf"} {
		t.Run(role, func(t *testing.T) {
			source := start(t, quick(t), peer("peer", role))
			names(t, source)
			var pids []string
			if role == "tools" {
				pids = []string{result(t, source, "peer/pid", nil), result(t, source, "peer/spawn", nil)}
			} else {
				pids = []string{strings.TrimPrefix(result(t, source, "peer/ok", nil), "fine ")}
			}
			began := time.Now()
			source.Close()
			source.Close()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("closing took %s", took)
			}
			for _, pid := range pids {
				await.Until(t, "process "+pid+" is gone", func() bool { return gone(pid) })
			}
			wantFailure(t, call(t, source, "peer/pid", nil), map[string]string{"tools": kindUnavailable, "deaf": kindNotFound}[role])
		})
	}
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	eachWay(t, func(t *testing.T, options Options, server Server) {
		server.Timeout = time.Minute
		source := start(t, options, server)
		names(t, source)
		done := make(chan map[string]any, 1)
		go func() {
			answer, _ := source.Call(t.Context(), "peer/slow", nil, "")
			done <- answer
		}()
		await.Until(t, "the call is under way", func() bool { return len(source.servers[0].places) == 1 })
		source.Close()
		if kind := await.Receive(t, done, "the end of the call")["error_type"]; kind != kindUnknown && kind != kindUnavailable {
			t.Errorf("the call ended with %v", kind)
		}
	})
}

func TestServerOverHTTPComesBack(t *testing.T) {
	address, stop := webPeer(t, "127.0.0.1:0", "t")
	options := quick(t)
	options.Client, options.ReconnectWait = safehttp.New(safehttp.Options{}), 200*time.Millisecond
	source := start(t, options, Server{Name: "peer", URL: "http://" + address, Token: "t", Timeout: 5 * time.Second})
	await.Until(t, "calls work", func() bool { return is(call(t, source, "peer/pid", nil)["success"]) })
	stop()
	await.Until(t, "calls fail", func() bool { return !is(call(t, source, "peer/pid", nil)["success"]) })
	webPeer(t, address, "t")
	await.Until(t, "calls work again", func() bool { return is(call(t, source, "peer/pid", nil)["success"]) })
}

func TestMissingServers(t *testing.T) {
	options := quick(t)
	options.Client, options.ReconnectWait = safehttp.New(safehttp.Options{}), 300*time.Millisecond
	options.ConnectTimeout = time.Second
	address, _ := webPeer(t, "127.0.0.1:0", "right")
	source := start(t, options,
		Server{Name: "program", Command: "/does/not/exist"},
		Server{Name: "directory", Command: "true", Directory: "/does/not/exist"},
		Server{Name: "short", Command: "sh", Arguments: []string{"-c", "echo no licence >&2; exit 7"}},
		Server{Name: "address", URL: "http://127.0.0.1:1/?key=sesame"},
		Server{Name: "token", URL: "http://" + address, Token: "wrong"},
		peer("mute", "mute"),
	)
	if list := names(t, source); len(list) > 0 {
		t.Errorf("tools of nobody: %v", list)
	}
	await.Until(t, "each has a reason", func() bool {
		return !slices.ContainsFunc(source.Status(), func(status Status) bool { return status.Reason == "" })
	})
	for _, status := range source.Status() {
		t.Logf("%s: %s", status.Server, status.Reason)
		want := map[string]string{
			"program": "no such file", "directory": "no such file", "short": "no licence", "address": "connection refused",
			"token": "Unauthorized", "mute": "deadline",
		}[status.Server]
		if !strings.Contains(status.Reason, want) || strings.Contains(status.Reason, "sesame") {
			t.Errorf("%s: %s", status.Server, status.Reason)
		}
	}
}

func TestOldServerIsAskedTheOldWay(t *testing.T) {
	options := quick(t)
	options.ConnectTimeout = time.Second
	source := start(t, options, peer("peer", "old"))
	await.Until(t, "it is connected", func() bool { return source.Status()[0].Connected })
	if got := result(t, source, "peer/ok", nil); !strings.HasPrefix(got, "fine") {
		t.Error(got)
	}
}

func TestNoiseOnStandardOutput(t *testing.T) {
	source := start(t, quick(t), peer("peer", "chatty"))
	names(t, source)
	result(t, source, "peer/ok", nil)
}

func TestHostileAnswers(t *testing.T) {
	options := quick(t)
	options.MaxAnswerBytes, options.MaxResultBytes = 1<<20, 50_001
	server := peer("peer", "rude")
	source := start(t, options, server)
	names(t, source)
	for _, wrong := range []struct{ tool, kind string }{
		{"huge", kindRefused},
		{"list", kindInvalid},
		{"kind", kindInvalid},
		{"text", kindInvalid},
		{"refuse", kindRefused},
	} {
		before := result(t, source, "peer/ok", nil)
		text := wantFailure(t, call(t, source, "peer/"+wrong.tool, nil), wrong.kind)
		t.Logf("%s: %s", wrong.tool, text)
		if after := result(t, source, "peer/ok", nil); after != before {
			t.Errorf("%s cost the server its life", wrong.tool)
		}
	}
	if got := call(t, source, "peer/null", nil); !is(got["success"]) || got["result"] != nil {
		t.Errorf("null: %v", got)
	}
	if got := result(t, source, "peer/twice", nil); got != "one" {
		t.Errorf("twice: %v", got)
	}
	if got := result(t, source, "peer/ok", nil); !strings.HasPrefix(got, "fine") {
		t.Errorf("after twice: %v", got)
	}
	exact := call(t, source, "peer/exact", nil)["result"]
	if got := fmt.Sprint(exact); got != "map[f:1.50 n:9007199254740993]" {
		t.Errorf("exact: %v", got)
	}
	for _, name := range []string{"wide", "wide_structured"} {
		answer := call(t, source, "peer/"+name, nil)
		cut, _ := answer["result"].(map[string]any)
		if !is(cut["truncated"]) || cut["excerpt_bytes"] != 50_000 && cut["excerpt_bytes"] != 50_001 || cut["original_bytes"].(int) < 200_000 {
			t.Errorf("%s: %v of %v", name, cut["excerpt_bytes"], cut["original_bytes"])
		}
	}
	for _, name := range []string{"garbage", "deep"} { // what is not JSON-RPC ends the connection
		wantFailure(t, call(t, source, "peer/"+name, nil), mayHaveRun)
		await.Until(t, "the server is started anew", func() bool { return is(call(t, source, "peer/ok", nil)["success"]) })
	}
}

func TestSilentServer(t *testing.T) {
	server := peer("peer", "rude")
	server.Timeout = 300 * time.Millisecond
	source := start(t, quick(t), server)
	names(t, source)
	pid := func() any { return call(t, source, "peer/ok", nil)["result"] }
	var before any
	await.Until(t, "it answers", func() bool { before = pid(); return before != nil })
	for _, name := range []string{"other_id", "hang"} {
		wantFailure(t, call(t, source, "peer/"+name, nil), kindTimeout)
	}
	await.Until(t, "the same process answers", func() bool { return pid() == before })
}

func TestHostileLists(t *testing.T) {
	t.Run("thousands", func(t *testing.T) {
		source := start(t, quick(t), peer("peer", "crowd"))
		if list := names(t, source); len(list) != 128 || !source.Status()[0].TooMany {
			t.Errorf("%d tools", len(list))
		}
	})
	t.Run("endless", func(t *testing.T) {
		source := start(t, quick(t), peer("peer", "endless"))
		if list := names(t, source); len(list) != 0 {
			t.Errorf("%d tools", len(list))
		}
		await.Until(t, "it is refused", func() bool { return strings.Contains(source.Status()[0].Reason, "more pages") })
	})
	t.Run("odd", func(t *testing.T) {
		source := start(t, quick(t), peer("peer", "odd"))
		want := []string{
			"peer/a--b", "peer/a-b", "peer/longlonglonglonglonglonglonglonglonglonglonglonglonglon_cc8458d7", "peer/tool_4d947325", "peer/tool_9lives",
		}
		if diff := cmp.Diff(want, names(t, source)); diff != "" {
			t.Error(diff)
		}
		if status := source.Status()[0]; status.Unusable != 8 {
			t.Errorf("%d unusable", status.Unusable)
		}
		rejected := source.Rejected()
		if len(rejected) != 7 || !strings.HasPrefix(rejected[0].Name, source.Status()[0].Server+"/") || rejected[0].Reason == "" {
			t.Errorf("rejected %+v", rejected)
		}
		for _, known := range source.servers[0].current().tools {
			if known.declaration.Description() != "evil" {
				t.Errorf("description %q", known.declaration.Description())
			}
		}
	})
}

// rudeWeb answers the handshake and then what the test wants.
func rudeWeb(t *testing.T, calls http.HandlerFunc) Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 64<<10)
		n, _ := r.Body.Read(body)
		text := string(body[:n])
		id := "0"
		if _, after, found := strings.Cut(text, `"id":`); found {
			id = after[:strings.IndexAny(after, ",}")]
		}
		r.Header.Set("Test-Id", id)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.Contains(text, `"server/discover"`):
			w.WriteHeader(http.StatusNotFound)
		case strings.Contains(text, `"initialize"`):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"r","version":"1"}}}`, id)
		case strings.Contains(text, `"tools/list"`):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"it","inputSchema":{"type":"object"}}]}}`, id)
		case strings.Contains(text, `"tools/call"`):
			calls(w, r)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(server.Close)
	return Server{Name: "rude", URL: server.URL, Token: "secret", Timeout: 10 * time.Second}
}

func TestHostileAnswersOverHTTP(t *testing.T) {
	elsewhere := atomic.Int32{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	huge := strings.Repeat("x", 2<<20)
	for name, test := range map[string]struct {
		kind   string
		answer func(w http.ResponseWriter, id string)
	}{
		"huge JSON": {kindRefused, func(w http.ResponseWriter, id string) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id, huge)
		}},
		"huge event": {mayHaveRun, func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`+"\n\n", id, huge)
		}},
		"huge refusal": {mayHaveRun, func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, huge)
		}},
		"endless stream": {kindTimeout, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n"); err != nil {
					return
				}
			}
		}},
		"page": {mayHaveRun, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}},
		"no JSON": {mayHaveRun, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, "{{{") }},
		"busy":    {mayHaveRun, func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusServiceUnavailable) }},
		"redirect": {mayHaveRun, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		"refusal": {kindRefused, func(w http.ResponseWriter, id string) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such room"}}`, id)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first := atomic.Bool{}
			server := rudeWeb(t, func(w http.ResponseWriter, r *http.Request) {
				if first.CompareAndSwap(false, true) {
					test.answer(w, r.Header.Get("Test-Id"))
					return
				}
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`,
					r.Header.Get("Test-Id"), strconv.Itoa(len(r.Header.Get("Authorization"))))
			})
			options := quick(t)
			options.Client, options.MaxAnswerBytes = safehttp.New(safehttp.Options{}), 1<<20
			if test.kind == kindTimeout {
				server.Timeout = 500 * time.Millisecond
			}
			source := start(t, options, server)
			names(t, source)
			t.Log(wantFailure(t, call(t, source, "rude/it", nil), test.kind))
			await.Until(t, "the next call works", func() bool { return call(t, source, "rude/it", nil)["result"] == "13" })
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

package mcptool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// quick are options with which nothing takes long.
func quick(t *testing.T) Options {
	t.Helper()
	return Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), StopGrace: 200 * time.Millisecond,
		RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, ConnectTimeout: 10 * time.Second,
	}
}

// peer is a program with a role; this binary plays it.
func peer(name, role string) Server {
	return Server{Name: name, Command: os.Args[0], Environment: []string{peerRole + "=" + role}, Timeout: 10 * time.Second}
}

func start(t *testing.T, options Options, servers ...Server) *Source {
	t.Helper()
	source, err := New(servers, options)
	if err != nil {
		t.Fatal(err)
	}
	source.Start()
	t.Cleanup(source.Close)
	return source
}

func names(t *testing.T, source *Source) []string {
	t.Helper()
	var list []string
	for _, declared := range source.Declarations(t.Context()) {
		list = append(list, declared["name"].(string))
	}
	return list
}

func call(t *testing.T, source *Source, name string, parameters map[string]any) map[string]any {
	t.Helper()
	answer, err := source.Call(t.Context(), name, parameters, "")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return answer
}

func result(t *testing.T, source *Source, name string, parameters map[string]any) string {
	t.Helper()
	answer := call(t, source, name, parameters)
	text, ok := answer["result"].(string)
	if !ok {
		t.Fatalf("%s answered %v", name, answer)
	}
	return text
}

// mayHaveRun stands for the kinds of a failure between server and answer. Which one it is depends on what is noticed
// first, the broken connection or the broken answer.
const mayHaveRun = "may have run"

func wantFailure(t *testing.T, answer map[string]any, kind string) string {
	t.Helper()
	text, _ := answer["error"].(string)
	if kind == mayHaveRun && strings.Contains(text, kind) && (answer["error_type"] == kindUnknown || answer["error_type"] == kindInvalid) {
		return text
	}
	if is(answer["success"]) || answer["error_type"] != kind || text == "" {
		t.Fatalf("answer = %v, want failure %s", answer, kind)
	}
	for _, internal := range []string{"127.0.0.1", "calling", "jsonrpc", "EOF", os.Args[0], "unmarshal"} {
		if strings.Contains(text, internal) {
			t.Errorf("error text shows internals: %s", text)
		}
	}
	return text
}

func is(value any) bool {
	yes, _ := value.(bool)
	return yes
}

// gone tells that a process ended and that we left no zombie of it. Children of a program that ended belong to the
// system, which buries them when it has time.
func gone(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	return fields[0] == "Z" && fields[1] != strconv.Itoa(os.Getpid())
}

// webPeer starts the peer as a process that serves HTTP, on an address that was used before or on any.
func webPeer(t *testing.T, listen, token string) (address string, stop func()) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), peerRole+"=web", "MCPTOOL_TEST_LISTEN="+listen, "MCPTOOL_TEST_TOKEN="+token)
	command.Stderr = t.Output()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = command.Process.Kill()
			_ = await.Result(t, command.Wait, "the end of the peer") // its error is the kill
		}
	}
	t.Cleanup(stop)
	address = await.Result(t, func() string {
		line, _ := bufio.NewReader(out).ReadString('\n')
		return strings.TrimSpace(line)
	}, "the address of the peer")
	if address == "" {
		t.Fatal("the peer ended before it said its address")
	}
	return address, stop
}

// eachWay runs a test over stdio and over HTTP, against a process of its own.
func eachWay(t *testing.T, test func(t *testing.T, options Options, server Server)) {
	t.Run("stdio", func(t *testing.T) { test(t, quick(t), peer("peer", "tools")) })
	t.Run("http", func(t *testing.T) {
		address, _ := webPeer(t, "127.0.0.1:0", "s3cret")
		options := quick(t)
		options.Client = safehttp.New(safehttp.Options{})
		test(t, options, Server{Name: "peer", URL: "http://" + address + "/", Token: "s3cret", Timeout: 10 * time.Second})
	})
}

func TestToolsAreListedAndCalled(t *testing.T) {
	eachWay(t, func(t *testing.T, options Options, server Server) {
		source := start(t, options, server)
		want := []string{
			"peer/add_numbers", "peer/approval", "peer/cancelled", "peer/cite", "peer/crash", "peer/delete_all", "peer/echo", "peer/environment",
			"peer/fail", "peer/grow", "peer/meta", "peer/picture", "peer/pid", "peer/resources", "peer/slow", "peer/spawn",
		}
		if diff := cmp.Diff(want, names(t, source)); diff != "" {
			t.Fatal(diff)
		}
		if got := result(t, source, "peer/echo", map[string]any{"text": "hello"}); got != "hello" {
			t.Errorf("echo = %q", got)
		}
		sum := call(t, source, "peer/add_numbers", map[string]any{"a": json.Number("2"), "b": 40})
		if diff := cmp.Diff(map[string]any{"success": true, "result": map[string]any{"sum": json.Number("42")}}, sum); diff != "" {
			t.Error(diff)
		}
		if text := wantFailure(t, call(t, source, "peer/fail", nil), kindTool); text != "the printer is on fire" {
			t.Errorf("error = %q", text)
		}
		wantFailure(t, call(t, source, "peer/nothing", nil), kindNotFound)
		wantFailure(t, call(t, source, "nowhere/echo", nil), kindNotFound)
		wantFailure(t, call(t, source, "echo", nil), kindNotFound)
		if text := wantFailure(t, call(t, source, "peer/echo", map[string]any{"text": 5}), kindTool); !strings.Contains(text, "text") {
			t.Errorf("wrong parameter: %q", text)
		}
		status := source.Status()[0]
		if !status.Connected || status.Server != "peer" || len(status.Tools) != len(want) || status.Reason != "" {
			t.Errorf("status = %+v", status)
		}
	})
}

func TestDeclarationsCarryTheOperatorsRules(t *testing.T) {
	server := peer("peer", "tools")
	server.Tools, server.Forbidden = []string{"echo", "add*", "delete*", "slow", "crash"}, []string{"crash"}
	server.Preview, server.AtMostOnce = []string{"delete_*"}, []string{"delete?All", "addNumbers"}
	source := start(t, quick(t), server)
	var entries []tool.Entry
	for _, declared := range source.Declarations(t.Context()) {
		entries = append(entries, tool.Entry{Value: declared})
	}
	set, rejected := tool.Declare(entries)
	if len(rejected) > 0 || set.Len() != 4 {
		t.Fatalf("%d declarations, rejected %v", set.Len(), rejected)
	}
	deleting, ok := set.Get("peer/delete_all")
	if !ok {
		t.Fatalf("delete/All is missing: %v", names(t, source))
	}
	if deleting.SafeName() != "peer__delete_all" || deleting.Source() != "peer" || deleting.Field("executor") != tool.ExecutorHost {
		t.Errorf("declaration = %v", deleting.Object())
	}
	if deleting.Field("action_policy") != "preview" || deleting.Field("at_most_once") != nil {
		t.Errorf("policy = %v", deleting.Object())
	}
	adding, _ := set.Get("peer/add_numbers")
	if !is(adding.Field("at_most_once")) || tool.Repeatable(adding) || adding.Field("action_policy") != "direct" {
		t.Errorf("policy = %v", adding.Object())
	}
	if required := value.Assoc(adding.Field("parameters"))["required"]; !value.Equal(required, []any{"a", "b"}) {
		t.Errorf("required = %v", required)
	}
	echo, _ := set.Get("peer/echo")
	if is(echo.Field("mutating")) || !tool.Strange(echo) || !tool.Repeatable(echo) {
		t.Errorf("echo = %v", echo.Object())
	}
	wantFailure(t, call(t, source, "peer/crash", nil), kindNotFound)
	if status := source.Status()[0]; status.LeftOut != 12 {
		t.Errorf("left out %d", status.LeftOut)
	}
}

func TestExecuteSendsTheKeyOfTheRun(t *testing.T) {
	source := start(t, quick(t), peer("peer", "tools"))
	names(t, source)
	prepare := func(run string) tool.Call {
		return tool.Call{Name: "peer/meta", Parameters: map[string]any{}, Context: map[string]any{"run_id": run}}
	}
	for _, run := range []string{"run-1", ""} {
		prepared := prepare(run)
		want := ""
		if run != "" {
			want = prepared.IdempotencyKey()
		}
		answer, err := source.Execute(t.Context(), prepared)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := answer["result"].(string); got != want {
			t.Errorf("run %q: key %v, want %q", run, answer, want)
		}
	}
}

func TestSlowCallIsCancelled(t *testing.T) {
	eachWay(t, func(t *testing.T, options Options, server Server) {
		server.Timeout = time.Second
		source := start(t, options, server)
		names(t, source)
		heard := func(what string) {
			t.Helper()
			await.Until(t, "the server hears of "+what, func() bool { return call(t, source, "peer/cancelled", nil)["result"] == what })
		}
		wantFailure(t, call(t, source, "peer/slow", nil), kindTimeout)
		heard("1 of 1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := source.Call(ctx, "peer/slow", nil, ""); done <- err }()
		heard("1 of 2")
		cancel()
		if err := await.Receive(t, done, "the end of the call"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gives up gets %v", err)
		}
		heard("2 of 2")
	})
}

func TestPartsBecomeFilesAndLinks(t *testing.T) {
	options := quick(t)
	options.Keep = func(_ context.Context, name, mediaType string, content []byte) (*normalized.BytesRef, error) {
		if name == "data.bin" {
			return nil, errors.New("disk full")
		}
		return normalized.Stored(mediaType + " " + string(content)), nil
	}
	for name, keep := range map[string]KeepFunc{"kept": options.Keep, "inline": nil} {
		t.Run(name, func(t *testing.T) {
			options.Keep = keep
			source := start(t, options, peer("peer", "tools"))
			names(t, source)
			reference := map[string]any{"kind": "inline", "data_base64": "iVBORw=="}
			file := map[string]any{
				"kind": "file", "mime": "application/octet-stream", "name": "data.bin", "size": json.Number("2"),
				"bytes_ref": map[string]any{"kind": "inline", "data_base64": "AQI="},
			}
			if keep != nil {
				reference = map[string]any{"kind": "content_addressed", "algo": "sha256", "digest": "image/png \x89PNG"}
				file = map[string]any{"kind": "file", "mime": "application/octet-stream", "name": "data.bin", "size": int64(2), "omitted": true}
			}
			want := map[string]any{"text": "a dot", "parts": []any{map[string]any{
				"kind": "file", "mime": "image/png", "name": "image", "size": json.Number("4"), "bytes_ref": reference,
			}}}
			if keep == nil {
				if diff := cmp.Diff(want, call(t, source, "peer/picture", nil)["result"]); diff != "" {
					t.Error(diff)
				}
			}
			parts := []any{
				map[string]any{"kind": "link", "url": "https://example.org/a", "title": "Page A"},
				map[string]any{"kind": "resource", "uri": "notes://7", "title": "note", "description": ""},
				map[string]any{"kind": "text", "mime": "text/markdown", "content": "# hi", "uri": "file:///x/read.md"},
				file,
			}
			if diff := cmp.Diff(map[string]any{"parts": parts}, call(t, source, "peer/resources", nil)["result"]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCitationsOfAServer(t *testing.T) {
	source := start(t, quick(t), peer("peer", "tools"))
	names(t, source)
	want := map[string]any{"citations": []any{map[string]any{"source_title": "Stock list", "score": json.Number("0.5")}}}
	if diff := cmp.Diff(want, call(t, source, "peer/cite", nil)["metadata"]); diff != "" {
		t.Error(diff)
	}
	if plain := call(t, source, "peer/meta", nil); plain["metadata"] != nil {
		t.Errorf("a result without citations has %v", plain["metadata"])
	}
}

func TestServerDoesNotSpeakTheLoopsLanguage(t *testing.T) {
	source := start(t, quick(t), peer("peer", "tools"))
	names(t, source)
	want := map[string]any{"structured": map[string]any{"type": "approval_required", "role": "tool"}}
	if diff := cmp.Diff(want, call(t, source, "peer/approval", nil)["result"]); diff != "" {
		t.Error(diff)
	}
}

func TestListIsReadAgainWhenItChanges(t *testing.T) {
	eachWay(t, func(t *testing.T, options Options, server Server) {
		source := start(t, options, server)
		if slices.Contains(names(t, source), "peer/extra") {
			t.Fatal("too early")
		}
		call(t, source, "peer/grow", nil)
		await.Until(t, "the new tool is declared", func() bool { return slices.Contains(names(t, source), "peer/extra") })
		if got := result(t, source, "peer/extra", nil); got != "here" {
			t.Errorf("extra = %q", got)
		}
	})
}

func TestEnvironmentIsAnAllowList(t *testing.T) {
	t.Setenv("MCPTOOL_SECRET", "leak")
	t.Setenv("MCPTOOL_PASSED", "yes")
	server := peer("peer", "tools")
	server.Environment = append(server.Environment, "MCPTOOL_PASSED", "MCPTOOL_SET=by hand", "MCPTOOL_MISSING")
	server.Directory = t.TempDir()
	source := start(t, quick(t), server)
	names(t, source)
	lines := strings.Split(result(t, source, "peer/environment", nil), "\n")
	for _, want := range []string{"MCPTOOL_PASSED=yes", "MCPTOOL_SET=by hand", "PATH=" + os.Getenv("PATH"), "cwd=" + server.Directory} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing in %q", want, lines)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "MCPTOOL_SECRET") || strings.HasPrefix(line, "MCPTOOL_MISSING") {
			t.Errorf("%s got through", line)
		}
	}
}

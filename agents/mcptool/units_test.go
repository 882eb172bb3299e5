package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/tool"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

func TestSettingsAreChecked(t *testing.T) {
	client := safehttp.New(safehttp.Options{})
	for want, servers := range map[string][]Server{
		"mcp[0].name":         {{Name: "No Name", Command: "x"}},
		"mcp[1].name":         {{Name: "a", Command: "x"}, {Name: "a", Command: "y"}},
		"mcp[0].command":      {{Name: "a"}},
		"mcp[0].url":          {{Name: "a", Command: "x", URL: "http://x/"}},
		"mcp[0].timeout":      {{Name: "a", Command: "x", Timeout: -1}},
		"mcp[0].tools":        {{Name: "a", Command: "x", Tools: []string{"[a"}}},
		"mcp[0].preview":      {{Name: "a", Command: "x", Preview: []string{""}}},
		"mcp[0].forbidden":    {{Name: "a", Command: "x", Forbidden: []string{`\`}}},
		"mcp[0].at_most_once": {{Name: "a", Command: "x", AtMostOnce: []string{"["}}},
		"mcp[0].environment":  {{Name: "a", Command: "x", Environment: []string{"=b"}}},
		"mcp[0].token":        {{Name: "a", Command: "x", Token: "t"}},
	} {
		if _, err := New(servers, Options{Client: client}); fault.Of(err).Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, address := range []string{"x", "ftp://x/", "http://u:p@x/", "http://x/#f", "http://"} {
		if _, err := New([]Server{{Name: "a", URL: address}}, Options{Client: client}); fault.Of(err).Field != "mcp[0].url" {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, name := range []string{"client", "host", "", strings.Repeat("a", 33)} {
		if _, err := New([]Server{{Name: name, Command: "x"}}, Options{}); fault.Of(err).Field != "mcp[0].name" {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if _, err := New([]Server{{Name: "a", URL: "http://x/"}}, Options{}); fault.Of(err).Field != "mcp[0].client" {
		t.Errorf("no client: %v", err)
	}
	if _, err := New(nil, Options{MaxTools: -1}); !fault.Is(err, fault.Malformed) {
		t.Errorf("negative limit: %v", err)
	}
}

func TestSourceWithoutStart(t *testing.T) {
	source, err := New([]Server{{Name: "a", Command: "x"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	source.Close()
	source.Start()
	if list := names(t, source); len(list) > 0 || !source.Has("a/x") || source.Has("a") || source.Has("b/x") {
		t.Error(list)
	}
}

func TestNames(t *testing.T) {
	for remote, want := range map[string]string{
		"getWeather": "get_weather", "HTTPGet": "httpget", "read.file": "read_file", "a/b": "a_b", "_x_": "x", "2fa": "tool_2fa",
		"***": "tool", "天气": "tool_4d947325", "keep-this_one": "keep-this_one",
	} {
		if got := slug(remote); got != want {
			t.Errorf("slug(%q) = %q, want %q", remote, got, want)
		}
	}
}

// offering lists tools as a server would, in this order.
func offering(remotes ...string) (listed *listing, naming map[string]string) {
	return offeringTo(Server{Name: "srv"}, remotes...)
}

// offeringTo lists tools as a server with these settings would.
func offeringTo(settings Server, remotes ...string) (listed *listing, naming map[string]string) {
	s := newServer(context.Background(), settings, Options{Log: slog.New(slog.DiscardHandler), MaxTools: 1000})
	found := &listing{byName: map[string]remoteTool{}, claims: map[string][]string{}, idle: settings.patterns()}
	for _, remote := range remotes {
		s.add(found, &mcp.Tool{Name: remote, InputSchema: map[string]any{"type": "object"}})
	}
	found, naming = s.settled(found), map[string]string{}
	for name, known := range found.byName {
		naming[known.remote] = name
	}
	return found, naming
}

// The name of a tool depends on its name at the server only: not on the order of the list, and not on other tools. Tools that would share a name
// have none.
func TestNamesAreValidAndDependOnNoOtherTool(t *testing.T) {
	canonical := regexp.MustCompile(`^srv/[a-z][a-z0-9_-]{0,63}$`)
	rapid.Check(t, func(t *rapid.T) {
		remotes := rapid.SliceOfDistinct(rapid.OneOf(rapid.StringN(1, 40, 128), rapid.StringMatching(`[aA._-]{1,4}`)), rapid.ID).Draw(t, "remotes")
		found, naming := offering(remotes...)
		if len(found.tools)+found.broken != len(remotes) || len(found.tools) != len(found.byName) {
			t.Fatalf("%d tools: %d declared under %d names, %d refused", len(remotes), len(found.tools), len(found.byName), found.broken)
		}
		for remote, name := range naming {
			if _, alone := offering(remote); alone[remote] != name || !canonical.MatchString(name) {
				t.Fatalf("%q is %q here and %q alone", remote, name, alone[remote])
			}
		}
		slices.Reverse(remotes)
		if _, reversed := offering(remotes...); !maps.Equal(naming, reversed) {
			t.Fatalf("%v in one order and %v in the other", naming, reversed)
		}
	})
}

func TestToolsThatShareANameAreRefusedByBothNames(t *testing.T) {
	for _, order := range [][]string{{"getUser", "get_user", "other"}, {"other", "get_user", "getUser"}} {
		found, naming := offering(order...)
		want := []tool.Rejection{{
			Name: "srv/get_user", Reason: `the tools "getUser" and "get_user" of the server are both srv/get_user; to have only "get_user", write forbidden = ["getUser"] in its [[agents.mcp]]`,
		}}
		if !maps.Equal(naming, map[string]string{"other": "srv/other"}) || !slices.Equal(found.wrong, want) || found.broken != 2 {
			t.Fatalf("%v, refused %d: %v", naming, found.broken, found.wrong)
		}
	}
	for _, remotes := range [][]string{{"天气", "日本"}, {strings.Repeat("a", 64) + "b", strings.Repeat("a", 64) + "c"}, {"a.b", "ä.b"}} {
		if found, naming := offering(remotes...); len(naming) != 2 {
			t.Errorf("%q: %v, refused %v", remotes, naming, found.wrong)
		}
	}
}

// TestAdviceForToolsThatShareANameWorks: with the pattern that the reason names, exactly the tool that it names is declared.
func TestAdviceForToolsThatShareANameWorks(t *testing.T) {
	advice := regexp.MustCompile(`to have only "(.+)", write forbidden = \[(.+)\] in`)
	for _, remotes := range [][]string{{"getUser", "get_user"}, {"getUser", "GetUser"}, {"get user", "get_user", "getUser", "get*user"}, {`a\b`, "a_b", "a[b]"}} {
		found, _ := offering(remotes...)
		if len(found.wrong) != 1 {
			t.Errorf("%q: %v", remotes, found.wrong)
			continue
		}
		said := advice.FindStringSubmatch(found.wrong[0].Reason)
		if said == nil {
			t.Errorf("no advice: %s", found.wrong[0].Reason)
			continue
		}
		var forbidden []string
		if err := json.Unmarshal([]byte("["+said[2]+"]"), &forbidden); err != nil {
			t.Errorf("%s: %v", said[2], err)
		}
		if _, naming := offeringTo(Server{Name: "srv", Forbidden: forbidden}, remotes...); len(naming) != 1 || naming[said[1]] == "" {
			t.Errorf("%q with forbidden = %q: %v, want %s", remotes, forbidden, naming, said[1])
		}
	}
}

// TestPatternsThatRestrictMayNameTheServer: an approval or a prohibition is not lost because its pattern is the canonical name or the name for
// models. A pattern that permits is only what it says.
func TestPatternsThatRestrictMayNameTheServer(t *testing.T) {
	const own, other = "add_note", "notes__add_note"
	for pattern, want := range map[string][2]bool{
		own: {true, false}, "notes/add_note": {true, false}, "notes__add_note": {true, true}, "notes__add_*": {true, true}, "notes/*": {true, true},
		"note": {}, "mail__add_note": {}, "no*": {false, true},
	} {
		s := Server{Name: "notes", Preview: []string{pattern}, Forbidden: []string{pattern}}
		for i, remote := range []string{own, other} {
			if previewed := s.action(remote, slug(remote)) == actionPreview; previewed != want[i] || s.offered(remote, slug(remote)) == want[i] {
				t.Errorf("%s: %s is previewed %t, forbidden %t", pattern, remote, previewed, !s.offered(remote, slug(remote)))
			}
		}
	}
	if s := (Server{Name: "notes", Tools: []string{other}}); s.offered(own, own) || !s.offered(other, other) {
		t.Error("tools lets in more than it names")
	}

	found, _ := offeringTo(Server{
		Name: "notes", Tools: []string{"*_note", "lst"}, Preview: []string{"notes__add_note"}, Forbidden: []string{"drop*", "dorp"}, AtMostOnce: []string{"add-note"},
	}, own, "drop_note")
	if want := []Unmatched{{"at_most_once", "add-note"}, {"forbidden", "dorp"}, {"tools", "lst"}}; !slices.Equal(found.idle, want) {
		t.Errorf("without a match: %v, want %v", found.idle, want)
	}
}

func TestPausesGrow(t *testing.T) {
	s := newServer(t.Context(), Server{}, Options{RetryMin: time.Second, RetryMax: time.Minute, Log: Options{}.withDefaults().Log})
	for failures, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 1000: time.Minute} {
		if got := s.pause(failures); got < want || got > want+want/5 {
			t.Errorf("pause(%d) = %s", failures, got)
		}
	}
}

func TestTail(t *testing.T) {
	var kept tail
	for i := range 1000 {
		fmt.Fprintf(&kept, "\x1b[31mline %d\n", i)
	}
	if text := kept.String(); len(text) > tailBytes || !strings.HasSuffix(text, "line 999") || strings.Contains(text, "\x1b") {
		t.Errorf("%d bytes: %q", len(text), text[len(text)-20:])
	}
	_, _ = kept.Write([]byte(strings.Repeat("z", 10*tailBytes)))
	if text := kept.String(); len(text) != tailBytes {
		t.Errorf("%d bytes", len(text))
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x00b\u202ec\xff", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(0, limit)
		clean := plain(text)
		if strings.ContainsAny(clean, "\x00\x1b\u202e") || !utf8.ValidString(clean) {
			t.Errorf("%q", clean)
		}
		if short := clip.Bytes(clean, limit); len(short) > limit || !utf8.ValidString(short) || !strings.HasPrefix(clean, short) {
			t.Errorf("clip.Bytes(%q, %d) = %q", clean, limit, short)
		}
	})
}

// linesOf reads from text as if a program had written it.
func linesOf(text []byte, limit int) ([]byte, error) {
	l := &lines{process: &process{drained: make(chan struct{})}, from: bufio.NewReaderSize(bytes.NewReader(text), 16), limit: limit}
	return io.ReadAll(l)
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("hello\n{\"jsonrpc\":\"2.0\"}\r\n\n[INFO]\n"), 1000)
	f.Add([]byte(`{"result":{"a":"}\"id\":9"},"jsonrpc":"2.0","id":12}`), 10)
	f.Add([]byte(`{"id":1,"method":"x","jsonrpc":"2.0"}`), 10)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = max(1, limit)
		out, err := linesOf(text, limit)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out) {
			if len(line) > max(limit+2, 256) || line[len(line)-1] != '\n' || !bytes.Contains(line, []byte(`"jsonrpc"`)) {
				t.Fatalf("line %q of %q", line, text)
			}
		}
	})
}

// FuzzSkipper compares with what encoding/json finds.
func FuzzSkipper(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":5,"result":{}}`, `{"result":{"id":6,"x":"\"id\":7"},"id": 8 }`, `{"id":"9"}`, `{"id":1.5}`, `{"id":-3}`,
		`{"id":1,"method":"x"}`, `{"id":1,"id":2}`, `{"a":[{"id":3}],"id":[4]}`, `{"id":null}`, `{"id":10000000000000000000000000000}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var skipped skipper
		skipped.feed(text)
		answer := skipped.answer(10)
		var members map[string]json.RawMessage
		if bytes.ContainsRune(text, '\\') || json.Unmarshal(text, &members) != nil {
			return
		}
		want := string(members["id"])
		whole := regexp.MustCompile(`^(0|[1-9][0-9]{0,17})$`).MatchString(want)
		if _, request := members["method"]; request || !whole {
			want = ""
		}
		var got struct {
			ID    json.RawMessage `json:"id"`
			Error json.RawMessage `json:"error"`
		}
		if answer != nil {
			if err := json.Unmarshal(answer, &got); err != nil || len(got.Error) == 0 {
				t.Fatalf("answer %q: %v", answer, err)
			}
		}
		if string(got.ID) != want {
			t.Fatalf("%q: id %q, want %q", text, got.ID, want)
		}
	})
}

func TestAddressesStayOutOfErrors(t *testing.T) {
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "nowhere://host/?key=sesame", nil)
	response, err := new(http.Client).Do(request)
	if err == nil {
		_ = response.Body.Close()
		t.Fatal("no error")
	}
	if strings.Contains(withoutAddress(err).Error(), "sesame") {
		t.Error(withoutAddress(err))
	}
}

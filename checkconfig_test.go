package inbox_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox"
	"inbox/inboxtest"
	"inbox/internal/config"
)

const checkedHead = "public_url = \"http://localhost:8080\"\n[federation]\nallow_private = true\n"

// kindTables are the least settings of each kind of agent.
var kindTables = map[string][]string{
	"webhook": {`url = "http://127.0.0.1:9000/"`, `secret = "0123456789abcdef0123"`},
	"llm":     {`model = "small"`, `base_url = "http://127.0.0.1:9000/v1"`},
	"command": {`program = "/bin/cat"`},
	"remote":  {`card_url = "https://agents.example/.well-known/agent-card.json"`},
	"pull":    {},
}

// wrongValues are values that a setting of a type may refuse, as TOML writes them.
func wrongValues(of reflect.Type) []string {
	switch {
	case of == reflect.TypeFor[time.Duration]():
		return []string{`"-1s"`, `"0s"`, `"1ns"`, `"100000h"`}
	case of == reflect.TypeFor[config.Size]():
		return []string{`-1`, `0`, `1`, `"900000TiB"`}
	case of.Kind() == reflect.Int || of.Kind() == reflect.Int64 || of.Kind() == reflect.Float64:
		return []string{`-1`, `0`, `1000000000`}
	case of.Kind() == reflect.String:
		return []string{
			`""`, `" "`, `"http://u:p@127.0.0.1/"`, `"http://127.0.0.1/#fragment"`, `"http://127.0.0.1:99999/"`, `"http://[::1/"`, `"ftp://a.example/"`, `"http://127.0.0.1/?q=1"`,
			`"https://u@a.example/"`, `"127.0.0.1:80"`, `"/there/is/no/such/file"`, `"["`, `"a b"`, `"a\u0000b"`, `"a\nb"`, `"INBOX_X"`,
		}
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.String:
		return []string{`[""]`, `[" "]`, `["INBOX_X=1"]`, `["=x"]`, `["a", "a"]`, `["http://u:p@a/"]`, `["category:"]`, `["a\u0000b"]`}
	}
	return nil
}

// settingsOf calls visit with every key below a table and its type; tables inside have their keys dotted.
func settingsOf(table reflect.Type, prefix string, visit func(key string, of reflect.Type)) {
	for field := range table.Fields() {
		key := prefix + field.Tag.Get("toml")
		switch {
		case field.Tag.Get("toml") == "" || field.Tag.Get("toml") == "-":
		case field.Type.Kind() == reflect.Struct && field.Type.PkgPath() == reflect.TypeFor[config.Config]().PkgPath():
			settingsOf(field.Type, key+".", visit)
		default:
			visit(key, field.Type)
		}
	}
}

// TestWhatAStartRefusesTheCheckRefuses: for every setting in the table of each kind of agent, and of its MCP servers. The settings are found
// by their types, so that new ones are here, too.
func TestWhatAStartRefusesTheCheckRefuses(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	server := inboxtest.New(t, "", "INBOX_FEDERATION_ALLOW_PRIVATE=true")
	t.Cleanup(func() { _ = server.Close() })

	refused, tried := map[string]bool{}, 0
	try := func(kind, key, text string) {
		t.Helper()
		settings, err := config.LoadText(file, text, nil)
		if err != nil {
			return // the check refuses it before it makes anything
		}
		tried++
		started := server.Build(t.Context(), settings)
		if started == nil {
			return
		}
		if refused[kind+"."+key] { // one value of each shows the way
			return
		}
		refused[kind], refused[kind+"."+key] = true, true
		if err := inbox.CheckConfig(t.Context(), settings); err == nil || !strings.Contains(err.Error(), "agents[0]") {
			t.Errorf("%s.%s: the start refuses (%v), the check says %v:\n%s", kind, key, started, err, text)
		}
	}

	for kind, least := range kindTables {
		field, _ := reflect.TypeFor[config.Agent]().FieldByNameFunc(func(name string) bool {
			one, _ := reflect.TypeFor[config.Agent]().FieldByName(name)
			return one.Tag.Get("toml") == kind
		})
		agent := checkedHead + "[[agents]]\nname = \"a\"\nkind = \"" + kind + "\"\n"
		settingsOf(field.Type, "", func(key string, of reflect.Type) {
			for _, value := range wrongValues(of) {
				lines := slices.DeleteFunc(slices.Clone(least), func(line string) bool { return strings.HasPrefix(line, key+" ") })
				try(kind, key, agent+"[agents."+kind+"]\n"+strings.Join(lines, "\n")+"\n"+key+" = "+value+"\n")
			}
		})
		if kind != "llm" {
			continue
		}
		for _, least := range [][]string{{`name = "tools"`, `command = "/bin/cat"`}, {`name = "tools"`, `url = "http://127.0.0.1:9001/mcp"`}} {
			settingsOf(reflect.TypeFor[config.MCP](), "", func(key string, of reflect.Type) {
				for _, value := range wrongValues(of) {
					lines := slices.DeleteFunc(slices.Clone(least), func(line string) bool { return strings.HasPrefix(line, key+" ") })
					try("mcp", key, agent+"[agents.llm]\nmodel = \"small\"\nbase_url = \"http://127.0.0.1:9000/v1\"\n[[agents.mcp]]\n"+strings.Join(lines, "\n")+"\n"+key+" = "+value+"\n")
				}
			})
		}
	}
	for _, kind := range []string{"webhook", "llm", "command", "remote", "mcp"} {
		if !refused[kind] {
			t.Errorf("no value of %s was refused by the start and not by reading it: the test sees nothing", kind)
		}
	}
	t.Logf("%d configurations were tried", tried)
}

// TestAgentOfTheAPIIsOneThatStarts: an agent with which the next start would end is refused, and the file stays as it was to the byte.
func TestAgentOfTheAPIIsOneThatStarts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	text := "# ours\r\n" + reloadable
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	s := inboxtest.New(t, file).Serve()
	admin, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range []map[string]string{
		{"kind": "webhook", "backend": "http://u:p@127.0.0.1/"},
		{"kind": "remote", "backend": "https://u:p@agents.example/card"}, {"kind": "llm", "model": "small", "backend": "http://u:p@127.0.0.1/v1"},
		{"kind": "webhook", "backend": "http://127.0.0.1/#x"},
	} {
		agent["name"] = "second"
		body, err := json.Marshal(agent)
		if err != nil {
			t.Fatal(err)
		}
		status, _, answer := s.Read("POST", "/api/v1/agents", admin, string(body), "Content-Type", "application/json")
		if status/100 != 4 {
			t.Errorf("%v: %d %s", agent, status, answer)
		}
		now, err := os.ReadFile(file)
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
		if err != nil || string(now) != text || len(left) != 1 {
			t.Errorf("%v: the file is %q, beside %v, %v", agent, now, left, err)
		}
	}
	status, _, answer := s.Read("POST", "/api/v1/agents", admin, `{"name": "second", "kind": "webhook", "backend": "http://127.0.0.1:9000/"}`, "Content-Type", "application/json")
	if status != http.StatusCreated && status != http.StatusOK {
		t.Errorf("a good one: %d %s", status, answer)
	}
	settings, err := inbox.LoadConfig(file, nil)
	if err == nil {
		err = inbox.CheckConfig(t.Context(), settings)
	}
	if err != nil || len(settings.Agents) != 2 {
		t.Error(fmt.Errorf("the file with it: %w", err))
	}
}

// TestCheckReadsTheDatabaseURL: the check took parameters that the start refuses.
func TestCheckReadsTheDatabaseURL(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:secret@h/d?statement_cache_capacity=abc":  "statement_cache_capacity",
		"postgres://u:secret@h/d?pool_health_check_period=0s":   "pool_health_check_period",
		"postgres://u:secret@h/d?pool_max_conn_lifetime=always": "pool_max_conn_lifetime",
		"postgres://u:secret@h/d?pool_min_conns=2":              "",
	} {
		file := filepath.Join(t.TempDir(), "inbox.toml")
		if err := os.WriteFile(file, []byte("domain = \"agents.test\"\ndatabase_url = \""+address+"\"\n"+checkedHead), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := inbox.LoadConfig(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = inbox.CheckConfig(t.Context(), settings)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v; want one that names %q", address, err, want)
		}
	}
}

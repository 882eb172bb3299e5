package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keysOf walks the tables and returns every key, with those of lists of tables.
func keysOf(table reflect.Type, path string) (keys []string) {
	for field := range table.Fields() {
		key := keyOf(field)
		switch {
		case key == "":
		case isTable(field.Type):
			keys = append(keys, keysOf(field.Type, join(path, key))...)
		case isTableList(field.Type):
			keys = append(keys, keysOf(field.Type.Elem(), join(path, key))...)
		default:
			keys = append(keys, join(path, key))
		}
	}
	return keys
}

// TestEveryKeyChangesOrNeedsARestart: a new key has to be put into one of the two lists, and no list names what is none.
func TestEveryKeyChangesOrNeedsARestart(t *testing.T) {
	keys := keysOf(reflect.TypeFor[Config](), "")
	for _, key := range keys {
		if _, known := Changeable(key); !known {
			t.Errorf("%s is in neither list of reload.go", key)
		}
	}

	changes, needsRestart := ReloadKeys()
	for _, entry := range slices.Concat(changes, needsRestart) {
		if !slices.ContainsFunc(keys, func(key string) bool { return key == entry || strings.HasPrefix(key, entry+".") }) {
			t.Errorf("%s of reload.go is no key", entry)
		}
	}
	if len(keys) < 150 {
		t.Errorf("only %d keys were found", len(keys))
	}
}

// TestReloadTableIsDocumented holds the table in docs/operating.md against the lists.
func TestReloadTableIsDocumented(t *testing.T) {
	changes, needsRestart := ReloadKeys()
	row := func(keys []string) string { return "`" + strings.Join(keys, "`, `") + "`" }
	want := "| holds at once | " + row(changes) + " |\n| needs a restart | " + row(needsRestart) + " |\n"
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/operating.md has not these rows:\n%s", want)
	}
}

const runningFile = `public_url = "https://agents.example"
[http]
listen = "127.0.0.1:8080"
[[agents]]
name = "helper"
kind = "echo"
[[agents]]
name = "other"
kind = "echo"
`

func loaded(t *testing.T, text string) *Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestCompare(t *testing.T) {
	for name, change := range map[string]struct {
		replace       []string
		changed, kept []string
	}{
		"nothing":      {nil, nil, nil},
		"log level":    {[]string{"[http]", "[log]\nlevel = \"debug\"\n[http]"}, []string{"log.level"}, nil},
		"listener":     {[]string{"8080", "8081"}, nil, []string{"http.listen"}},
		"access":       {[]string{"kind = \"echo\"\n[[agents]]", "kind = \"echo\"\naccess = \"verified\"\n[[agents]]"}, []string{"agents[helper].access"}, nil},
		"removed":      {[]string{"[[agents]]\nname = \"other\"\nkind = \"echo\"\n", ""}, []string{"agents[other]"}, nil},
		"added":        {[]string{"[http]", "[[agents]]\nname = \"new\"\nkind = \"echo\"\n[http]"}, []string{"agents[new]"}, nil},
		"other order":  {[]string{"helper", "x", "other", "helper", "\"x\"", "\"other\""}, []string{"agents", "agents[helper].display_name", "agents[other].display_name"}[:1], nil},
		"both at once": {[]string{"8080", "8081", "[http]", "[limits]\nbot_turns = 3\n[http]"}, []string{"limits.bot_turns"}, []string{"http.listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			running := loaded(t, runningFile)
			text := runningFile
			for pair := range slices.Chunk(change.replace, 2) {
				text = strings.Replace(text, pair[0], pair[1], 1)
			}
			if err := os.WriteFile(running.File, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			mixed, got, err := running.Reload()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Difference{Changed: change.changed, UnchangedUntilRestart: change.kept}, got); diff != "" {
				t.Error(diff)
			}
			if mixed.HTTP.Listen != "127.0.0.1:8080" {
				t.Errorf("http.listen became %s", mixed.HTTP.Listen)
			}
			if again := Compare(mixed, loaded(t, text)); len(again.Changed) > 0 || !slices.Equal(again.UnchangedUntilRestart, change.kept) {
				t.Errorf("what was taken over still differs: %+v", again)
			}
		})
	}
}

// TestReloadChecksTheMixture: what only the file as a whole allows is refused while a part of it does not hold, and says so.
func TestReloadChecksTheMixture(t *testing.T) {
	running := loaded(t, runningFile)
	before := *running
	text := strings.Replace(runningFile, "[http]", "[federation]\nallow_private = true\n[http]", 1)
	text += "[[a2a.issuers]]\nissuer = \"http://127.0.0.1:9\"\njwks_url = \"http://127.0.0.1:9/keys\"\n"
	if err := os.WriteFile(running.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(running.File, nil); err != nil {
		t.Fatalf("the file is bad by itself: %v", err)
	}
	_, _, err := running.Reload()
	if err == nil || !strings.Contains(err.Error(), "a2a.issuers[0]") || !strings.Contains(err.Error(), "need one: ") || !strings.Contains(err.Error(), "federation.allow_private") {
		t.Errorf("the mixture says: %v", err)
	}
	if diff := cmp.Diff(before, *running); diff != "" {
		t.Errorf("the running settings were changed:\n%s", diff)
	}
}

// TestReloadKeepsLimitsOfAnOpenNetwork: what follows from federation.allow_private waits for a restart together with it.
func TestReloadKeepsLimitsOfAnOpenNetwork(t *testing.T) {
	running := loaded(t, runningFile)
	text := strings.Replace(runningFile, "[http]", "[federation]\nallow_private = true\n[http]", 1)
	if err := os.WriteFile(running.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	next, difference, err := running.Reload()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(running.Limits, next.Limits); diff != "" {
		t.Errorf("limits changed before the restart:\n%s", diff)
	}
	if len(difference.Changed) > 0 || !slices.Contains(difference.UnchangedUntilRestart, "limits") {
		t.Errorf("%+v", difference)
	}
}

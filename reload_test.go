package inbox_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"inbox/inboxtest"
	"inbox/internal/await"
)

const reloadable = "public_url = \"http://localhost:8080\"\n[federation]\nallow_private = true\n[[agents]]\nname = \"echo\"\nkind = \"echo\"\n"

// ofTools counts the goroutines that keep connections to tools, which no other test of this package has.
func ofTools() int {
	stacks := make([]byte, 4<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "inbox/agents/mcptool.(*server).run")
}

// TestReloadLeavesNothingBehind: agents of every kind that holds something come and go, and no goroutine of them stays.
func TestReloadLeavesNothingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inbox.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write(reloadable)
	s := inboxtest.New(t, file).Serve()
	reload := func(wanted string) {
		t.Helper()
		answer, err := s.Reload(t.Context())
		if err != nil || strings.Join(answer.Changed, " ") != wanted {
			t.Fatalf("changed %v, want %q: %v", answer.Changed, wanted, err)
		}
	}

	var began goleak.Option
	for round := range 26 {
		if round == 1 { // what the first agents of all leave for good, such as open connections to the database, is no leak
			await.Until(t, "the goroutines of the first round end", func() bool { return ofTools() == 0 })
			began = goleak.IgnoreCurrent()
		}
		write(reloadable + `
[[agents]]
name = "tools"
kind = "llm"
[agents.llm]
provider = "openai"
base_url = "http://127.0.0.1:9/v1"
model = "m"
[[agents.mcp]]
name = "away"
url = "http://127.0.0.1:9/mcp"
[[agents.client_tools]]
name = "look"
description = "Looks."
[[agents]]
name = "laptop"
kind = "pull"
[[agents]]
name = "hook"
kind = "webhook"
[agents.webhook]
url = "http://127.0.0.1:9/"
secret = "0123456789abcdef0123456789abcdef"
`)
		reload("agents[hook] agents[laptop] agents[tools]")
		await.Until(t, "the tools of the new agent are looked for", func() bool { return ofTools() > 0 })
		if len(s.Agents()) != 4 {
			t.Fatalf("round %d has the agents %v", round, s.Agents())
		}
		write(reloadable)
		reload("agents[hook] agents[laptop] agents[tools]")
	}

	await.Until(t, "nothing runs that did not before fifty reloads", func() bool { return goleak.Find(began) == nil })
	if len(s.Agents()) != 1 {
		t.Errorf("agents %v", s.Agents())
	}

	write(reloadable + "[[agents]]\nname = \"broken\"\nkind = \"webhook\"\n")
	if _, err := s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "inbox.toml:7") {
		t.Errorf("a bad file says: %v", err)
	}
	write(strings.Replace(reloadable, "[federation]", "[a2a]\ndefault_agent = \"gone\"\n[federation]", 1))
	if _, err := s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "a2a.default_agent") {
		t.Errorf("a default agent that is not there says: %v", err)
	}
	if len(s.Agents()) != 1 {
		t.Errorf("a bad file changed the agents to %v", s.Agents())
	}
}

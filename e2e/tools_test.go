package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// calling streams one call of a tool.
func calling(id, name, arguments string) string {
	return fmt.Sprintf(`{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`,
		id, name, arguments)
}

// takesANote looks at the notes, adds one and says so.
func takesANote(request modelRequest) string {
	if len(request.Tools) == 0 {
		return saidHello
	}
	results := 0
	for _, message := range request.Messages {
		if strings.Contains(string(message), `"role":"tool"`) {
			results++
		}
	}
	switch results {
	case 0:
		return calling("call_1", "notes__list_notes", `{}`)
	case 1:
		return calling("call_2", "notes__add_note", `{"text":"buy milk"}`)
	}
	return strings.Replace(saidHello, "from the model.", "again, I noted it.", 1)
}

// noteTaker is the configuration of a model with the notes of the documentation's tool server.
func noteTaker(t *testing.T, provider *model, notes, more string) string {
	t.Helper()
	return fmt.Sprintf(`[[agents]]
name = "memory"
kind = "llm"
access = "public"
%s
[[agents.rules]]
effect = "allow"
purposes = ["tool:notes/list_notes", "tool:notes/add_note"]
[agents.llm]
base_url = %q
model = "scripted"
[[agents.mcp]]
name = "notes"
command = "/usr/bin/python3"
arguments = [%q, %q]
`, more, provider.URL, filepath.Join(examplesDirectory(t), "pythontools", "server.py"), notes)
}

func TestModelUsesTools(t *testing.T) {
	provider := startModel(t, takesANote)
	notes := filepath.Join(t.TempDir(), "notes.jsonl")
	s := start(t, instance.Settings{Agents: noteTaker(t, provider, notes, "")})
	if text := answered(t, s.a2aPeer("memory", "ann"), "please note: buy milk"); !strings.Contains(text, "again, I noted it.") {
		t.Errorf("the model answered %q", text)
	}
	if content, err := os.ReadFile(notes); err != nil || strings.Count(string(content), "buy milk") != 1 {
		t.Errorf("the notes are %q (%v); want one", content, err)
	}
}

func TestToolsAreClosedWithoutARule(t *testing.T) {
	provider := startModel(t, takesANote)
	notes := filepath.Join(t.TempDir(), "notes.jsonl")
	closed := strings.Replace(noteTaker(t, provider, notes, ""), `"tool:notes/list_notes", "tool:notes/add_note"`, `"skill:none"`, 1)
	s := start(t, instance.Settings{Agents: closed})
	answered(t, s.a2aPeer("memory", "ann"), "please note: buy milk")
	if _, err := os.Stat(notes); err == nil {
		t.Error("a tool ran that no rule opens")
	}
	provider.mu.Lock()
	defer provider.mu.Unlock()
	for _, asked := range provider.asked {
		if len(asked.Tools) > 0 {
			t.Errorf("the model was offered %s", asked.Tools)
		}
	}
}

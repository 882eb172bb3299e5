package command

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
)

const examples = "../../docs/examples/command/"

// TestExamples runs the programs that the documentation shows.
func TestExamples(t *testing.T) {
	for file, test := range map[string]struct{ output, answer string }{
		"agent.py": {OutputJSON, `^Hello \*@alice@peer\.example\*, you wrote \d+ words\.$`},
		"date.sh":  {OutputText, `^It is \d\d:\d\d UTC\.$`},
	} {
		t.Run(file, func(t *testing.T) {
			agent := made(t, Options{Program: examples + file, Output: test.output})
			if got := said(t, agent); !regexp.MustCompile(test.answer).MatchString(got) {
				t.Errorf("answer = %q", got)
			}
			agenttest.Suite{New: func(*testing.T) agents.Agent { return agent }}.Run(t)
		})
	}
}

// TestGuide keeps the guide true: its example answer is one, and it names every variable and code.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/command.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "\n## The answer\n")
	_, rest, _ = strings.Cut(rest, "```json\n")
	shown, _, _ := strings.Cut(rest, "```")
	if !json.Valid([]byte(shown)) {
		t.Fatalf("no JSON: %s", shown)
	}
	if _, err := (&Agent{Options{}.withDefaults()}).answer(t.Context(), result{stdout: []byte(shown)}, agents.Turn{Message: agenttest.Messages()["text"]}, placed{}); err != nil {
		t.Errorf("%v\n%s", err, shown)
	}
	for _, word := range []string{"INBOX_TURN_ID", "INBOX_ATTEMPT", "INBOX_AGENT", "INBOX_IDEMPOTENCY_KEY", "75", "64 KiB", "examples/command/agent.py", "examples/command/date.sh"} {
		if !strings.Contains(string(guide), word) {
			t.Errorf("the guide does not say %q", word)
		}
	}
}

package webhook

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestGuide returns the answers that the guide shows to the agent.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, answers, _ := strings.Cut(string(guide), "\n## The answer\n")
	answers, _, _ = strings.Cut(answers, "\n## ")
	blocks := strings.Split(answers, "```")
	shown := 0
	for i := 1; i < len(blocks); i += 2 {
		language, body, _ := strings.Cut(blocks[i], "\n")
		contentType := map[string]string{"json": "application/json", "": "text/event-stream"}[language]
		agent := startAgent(t, answering(http.StatusOK, contentType, body), nil)
		deltas, err := run(t.Context(), agent, question())
		if err != nil {
			t.Errorf("%v\n%s", err, body)
			continue
		}
		if got := folded(t, deltas); len(got.Parts)+len(got.Dispatch) != 1 {
			t.Errorf("want one part or one question of\n%s", body)
		}
		shown++
	}
	if shown != 5 {
		t.Errorf("%d answers in the guide, want 5", shown)
	}
}

package llm

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestGuide holds the numbers and names of the guide against the program.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/llm.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(guide)), " ")
	for _, want := range []string{
		DefaultOpenAIURL, DefaultAnthropicURL, fmt.Sprintf("`max_turns` | `%d`", DefaultMaxTurns),
		fmt.Sprintf("`max_tool_calls` | `%d`", DefaultToolCalls), fmt.Sprintf("`%d` with `anthropic`", DefaultMaxTokens), fmt.Sprintf("the newest %d of", maxImages),
		fmt.Sprintf("pictures up to %d MiB", maxImageBytes>>20), fmt.Sprintf("%d MiB together", maxImagesSum>>20),
		fmt.Sprintf("up to %d KiB (%d KiB together)", maxTextFile>>10, maxTextFiles>>10),
		fmt.Sprintf("Results over %d KiB", maxResultBytes>>10), fmt.Sprintf("over %d MiB", DefaultMaxResponseBytes>>20),
		"model:refusal", "model:empty", "inbox_model_requests_total", "inbox_model_seconds", "inbox_model_tokens_total",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the guide does not say %q", want)
		}
	}
}

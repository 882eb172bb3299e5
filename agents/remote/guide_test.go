package remote

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"inbox/normalized"
)

// TestGuideTellsTheTruth compares the guide with the constants that it states.
func TestGuideTellsTheTruth(t *testing.T) {
	content, err := os.ReadFile("../../docs/agents/remote.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(content)
	for _, want := range []string{
		"| 4 min 30 s,", "| file up to 4 MiB |", "| one response, a stream being one | 8 MiB |", fmt.Sprintf("forgotten %d days", DefaultThreadLife/(24*time.Hour)),
		fmt.Sprintf("comments count as life | %d s", DefaultIdleLimit/time.Second), emptyText, wellKnown,
		fmt.Sprintf("8 MiB, %d artifacts", maxArtifacts), fmt.Sprintf("| %d bytes;", maxIDBytes), fmt.Sprintf("every %d minutes", cardLife/time.Minute),
		fmt.Sprintf("| card | %d KiB, %d s |", maxCardBytes>>10, cardLimit/time.Second), fmt.Sprintf("over %d KiB", normalized.MaxInlineBytes>>10),
		"inbox_remote_exchanges_total", "inbox_remote_recoveries_total", "inbox_remote_seconds",
	} {
		if !strings.Contains(guide, want) {
			t.Errorf("the guide does not say %q", want)
		}
	}
	if DefaultTimeLimit != 270*time.Second || DefaultMaxFileBytes != 4<<20 || DefaultMaxResponseBytes != 8<<20 || maxAnswer != 8<<20 ||
		DefaultPollInterval != 500*time.Millisecond || maxResubscribes != 5 {
		t.Error("a limit changed: change the guide, too")
	}
}

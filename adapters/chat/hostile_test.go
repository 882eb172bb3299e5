package chat

import (
	"slices"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/internal/markup/markuptest"
)

// TestTextsNeverBecomeMarkup: names and summaries of agents stay texts on the page of the chat, also in the attributes of its script.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	for _, open := range []bool{true, false} {
		rendered := func(text string) []string {
			t.Helper()
			var html strings.Builder
			agent := exchange.AgentProfile{Name: text, Address: text, DisplayName: text, Summary: text}
			if err := chatPage(view{agent, open}).Render(t.Context(), &html); err != nil {
				t.Fatal(err)
			}
			skeleton, err := markuptest.Skeleton(html.String())
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			return skeleton
		}
		harmless := rendered("harmless")
		for _, text := range markuptest.Hostile {
			if got := rendered(text); !slices.Equal(got, harmless) {
				t.Errorf("%q:\n%v, want\n%v", text, got, harmless)
			}
		}
	}
}

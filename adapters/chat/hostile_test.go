package chat

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/internal/catalog/catalogtest"
	"inbox/internal/design"
	"inbox/internal/markup/markuptest"
)

func TestTranslations(t *testing.T) { catalogtest.Check(t, ".", texts) }

// TestWordsOfTheScript: every text that the script shows has a translation, and no translation is left over.
func TestWordsOfTheScript(t *testing.T) {
	var translated map[string]string
	if err := json.Unmarshal(scriptWords, &translated); err != nil {
		t.Fatal(err)
	}

	used := map[string]bool{"1 tool": true, "{count} tools": true} // chosen by the number of tools
	for _, found := range regexp.MustCompile(`\bt\("([^"]+)"`).FindAllStringSubmatch(scriptSource, -1) {
		used[found[1]] = true
	}
	for english := range used {
		if translated[english] == "" {
			t.Errorf("%q has no translation", english)
		}
	}
	for english := range translated {
		if !used[english] {
			t.Errorf("the translation of %q is not used", english)
		}
	}
	text, _ := newScript().with(scriptLimits{})
	if served := string(text); strings.Contains(served, "__") || !strings.Contains(served, "--accent: light-dark(") || !strings.Contains(served, ":host") {
		t.Error("the script is served without its tokens or its words")
	}
}

// TestTextsNeverBecomeMarkup: names and summaries of agents stay texts on the page of the chat, also in the attributes of its script.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	for _, open := range []bool{true, false} {
		rendered := func(text string) []string {
			t.Helper()
			var html strings.Builder
			head := design.Head{Title: text, Lang: "en", Class: "public", Description: text, Canonical: text, OpenGraph: design.OpenGraph{Type: "website", Site: text}}
			agent := exchange.AgentProfile{Name: text, Address: text, DisplayName: text, Summary: text}
			if err := chatPage(head, view{agent, Opening{text, Suggestions{text}}, text, open}).Render(t.Context(), &html); err != nil {
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

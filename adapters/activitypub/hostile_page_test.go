package activitypub

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/internal/catalog/catalogtest"
	"inbox/internal/design"
	"inbox/internal/markup/markuptest"
)

// TestTextsOfNotesNeverBecomeMarkup: on the page of a note all but its sanitized content stays text, and no address runs anything.
func TestTextsOfNotesNeverBecomeMarkup(t *testing.T) {
	rendered := func(text, content string) []string {
		t.Helper()
		made := note{
			ID: text, Content: content, Summary: text, Published: text, InReplyTo: text,
			Attachment: []noteFile{{URL: text, Name: text}, {URL: text}},
		}
		var html strings.Builder
		if err := notePage(design.Head{Title: text, Lang: "en", Class: "public", Canonical: text, Description: text, OpenGraph: design.OpenGraph{Type: "article", Site: text}}, made, text, text, text).Render(t.Context(), &html); err != nil {
			t.Fatal(err)
		}
		skeleton, err := markuptest.Skeleton(html.String())
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return skeleton
	}
	harmless := rendered("harmless", "<p>x</p>")
	for _, text := range markuptest.Hostile {
		if got := rendered(text, "<p>x</p>"); !slices.Equal(got, harmless) {
			t.Errorf("%q:\n%v, want\n%v", text, got, harmless)
		}
		if got, want := dangerous(rendered("harmless", "<p>x</p>"+text)), dangerous(harmless); !slices.Equal(got, want) {
			t.Errorf("content %q became %v; the page has %v", text, got, want)
		}
	}
}

// dangerous are the elements that content must not become; the page has some of its own.
func dangerous(elements []string) []string {
	return slices.DeleteFunc(slices.Clone(elements), func(element string) bool {
		name, _, _ := strings.Cut(element, " ")
		return !slices.Contains([]string{"script", "svg", "img", "iframe", "form"}, name)
	})
}

// TestTranslations looks at the page alone: elsewhere in this package a method Text reads members of documents.
func TestTranslations(t *testing.T) {
	page, err := os.ReadFile("notepage_templ.go")
	if err != nil {
		t.Fatal(err)
	}
	alone := t.TempDir()
	if err := os.WriteFile(filepath.Join(alone, "page.go"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	catalogtest.Check(t, alone, texts)
}

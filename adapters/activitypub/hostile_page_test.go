package activitypub

import (
	"slices"
	"strings"
	"testing"

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
		if err := notePage(made, text, text, text).Render(t.Context(), &html); err != nil {
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
		for _, element := range rendered("harmless", "<p>x</p>"+text) {
			if name, _, _ := strings.Cut(element, " "); slices.Contains([]string{"script", "svg", "img", "iframe", "form"}, name) {
				t.Errorf("content %q became <%s>", text, element)
			}
		}
	}
}

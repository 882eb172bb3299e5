package notetext

import (
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

func TestHostileNotesCostTheirLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.HTML, 128<<10, func(source string) {
		if text, _ := Note(source, testReader()); len(text) > maxTextBytes+4096 {
			t.Errorf("%d bytes of text", len(text))
		}
	})
}

func TestHostileMarkdownOfAnswersCostsItsLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.Markdown, 64<<10, func(source string) { HTML(normalized.Markdown("![x](https://a.test/x.png)\n\n"+source), attached) })
}

// attached takes every picture.
func attached(string, string) bool { return true }

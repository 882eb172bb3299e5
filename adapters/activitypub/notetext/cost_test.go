package notetext

import (
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

func TestHostileNotesCostTheirLength(t *testing.T) {
	for name, source := range markuptest.HTML(128 << 10) {
		t.Run(name, func(t *testing.T) {
			markuptest.Check(t, len(source), func() {
				if text, _ := Note(source, testReader()); len(text) > maxTextBytes+4096 {
					t.Errorf("%d bytes of text", len(text))
				}
			})
		})
	}
}

func TestHostileMarkdownOfAnswersCostsItsLength(t *testing.T) {
	for name, source := range markuptest.Markdown(64 << 10) {
		t.Run(name, func(t *testing.T) {
			markuptest.Check(t, 2*len(source), func() { HTML(normalized.Markdown("![x](https://a.test/x.png)\n\n"+source), attached) })
		})
	}
}

// attached takes every picture.
func attached(string, string) bool { return true }

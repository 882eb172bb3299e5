package email

import (
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

// TestHostileHTMLOfMailsCostsItsLength: 36 KiB of nested quotations once took 15 seconds of CPU.
func TestHostileHTMLOfMailsCostsItsLength(t *testing.T) {
	for name, source := range markuptest.HTML(128 << 10) {
		t.Run(name, func(t *testing.T) {
			markuptest.Check(t, len(source), func() {
				if content, _, own, _ := readHTML(source, false); len(content) > maxTextBytes+4096 || len(own) > maxTextBytes+4096 {
					t.Errorf("%d and %d bytes of text", len(content), len(own))
				}
			})
		})
	}
}

func TestHostileMarkdownOfAnswersCostsItsLength(t *testing.T) {
	for name, source := range markuptest.Markdown(64 << 10) {
		t.Run(name, func(t *testing.T) {
			// Both forms are made, and the HTML is cleaned.
			markuptest.Check(t, 3*len(source), func() { new(composer).addText(normalized.Markdown(source)) })
		})
	}
}

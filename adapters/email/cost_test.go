package email

import (
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

func TestHostileMarkdownOfAnswersCostsItsLength(t *testing.T) {
	for name, source := range markuptest.Markdown(64 << 10) {
		t.Run(name, func(t *testing.T) {
			// Both forms are made, and the HTML is cleaned.
			markuptest.Check(t, 3*len(source), func() { new(composer).addText(normalized.Markdown(source)) })
		})
	}
}

package markup_test

import (
	"slices"
	"strings"
	"testing"

	"inbox/internal/markup"
	"inbox/internal/markup/markuptest"
)

// TestPiecesOfAnswersAreTheWhole: wherever an answer is cut, its pieces say what it says and lead where it leads.
func TestPiecesOfAnswersAreTheWhole(t *testing.T) {
	bare := markup.Page{Sanitize: func(content string) string { return content }}
	squeezed := func(words string) string { return strings.ReplaceAll(markuptest.Bare(words), " ", "") }
	for _, one := range slices.Concat(markuptest.Answers(t), markuptest.CommonMark(t)) {
		want, addresses := markuptest.Read(t, markup.From(one.MIME, one.Content).HTML(bare))
		for _, limit := range []int{1, 20, 200} {
			var said string
			var led []string
			for _, piece := range markup.From(one.MIME, one.Content).Pieces(limit) {
				words, leads := markuptest.Read(t, piece.HTML(bare))
				said, led = said+words, append(led, leads...)
			}
			if !strings.Contains(one.Content, "|") && squeezed(said) != squeezed(want) { // a table repeats its head
				t.Errorf("pieces of %d of\n%s\nsay\n%s\nwant\n%s", limit, one.Content, said, want)
			}
			for _, address := range addresses {
				if !slices.Contains(led, address) {
					t.Errorf("pieces of %d of\n%s\ndo not lead to %s", limit, one.Content, address)
				}
			}
		}
	}
}

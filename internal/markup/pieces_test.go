package markup_test

import (
	"slices"
	"strings"
	"testing"

	"inbox/internal/markup"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
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
			for piece := range markup.From(one.MIME, one.Content).Pieces(limit) {
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

// TestTextsTogetherAreTheWhole: texts in Markdown that are joined say what they say one by one.
func TestTextsTogetherAreTheWhole(t *testing.T) {
	bare := markup.Page{Sanitize: func(content string) string { return content }}
	read := func(source string) string {
		words, _ := markuptest.Read(t, markup.FromMarkdown(source).HTML(bare))
		return words
	}
	open := []string{"```go\nx := *y*", "- a\n\n  ~~~\n  *b*", "<!-- a *b*", "1. one\n2. two", "> quoted", "> ```\n> a", "| a |\n|---|\n| b |", "*a", "`a", "[a", "<b>a"}
	next := []string{"*said* `after`", "1. first", "- item", "> quote", "    code", "```\ncode\n```", "# title", "| c |\n|---|\n| d |", "a* b` c]", "---"}
	for _, first := range open {
		for _, second := range next {
			joined := normalized.JoinMarkdown([]string{first, second})
			if got, want := read(joined), strings.TrimSpace(read(first)+" "+read(second)); got != want {
				t.Errorf("%q and %q say\n%s\nwant\n%s", first, second, got, want)
			}
		}
	}
}

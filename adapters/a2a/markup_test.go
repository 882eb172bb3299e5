package a2a

import (
	"strings"
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

// TestHostileHTMLPartsCostTheirLength: a text/html part had no bound at all.
func TestHostileHTMLPartsCostTheirLength(t *testing.T) {
	for name, source := range markuptest.HTML(128 << 10) {
		t.Run(name, func(t *testing.T) {
			markuptest.Check(t, len(source), func() { normalizeText(source, "text/html; charset=utf-8") })
		})
	}
}

func TestHTMLPartsBecomeMarkdown(t *testing.T) {
	part := normalizeText("<h1>Plan</h1><blockquote>old</blockquote><ul><li><b>one</b></li></ul>", "text/html")
	if part.MIME != normalized.MIMEMarkdown || part.Content != "# Plan\n\n> old\n\n- **one**" {
		t.Errorf("%+v", part)
	}
	if long := normalizeText(strings.Repeat("<p>word</p>", 100_000), "text/html"); !strings.Contains(long.Content, "The text was cut") || len(long.Content) > 600<<10 {
		t.Errorf("%d bytes, without a word that the rest is missing", len(long.Content))
	}
}

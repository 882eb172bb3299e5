package markup_test

import (
	"testing"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"inbox/internal/markup"
	"inbox/internal/markup/markuptest"
)

var page = markup.Page{Simple: true, Sanitize: bluemonday.UGCPolicy().Sanitize}

func convertHTML(source string) (nodes, written int) {
	document, _ := markup.Parse(source, markup.Limits{})
	for range document.Descendants() {
		nodes++
	}
	for _, form := range []markup.Form{markup.Plain, markup.Markdown} {
		text, _ := markup.Text(document, form, 0)
		written += len(text)
	}
	return nodes, written
}

// TestHostileHTMLCostsItsLength counts what is made of documents that grow fourfold.
func TestHostileHTMLCostsItsLength(t *testing.T) {
	large := markuptest.HTML(128 << 10)
	for name, small := range markuptest.HTML(32 << 10) {
		nodes, written := convertHTML(small)
		if more, longer := convertHTML(large[name]); more > 5*nodes+2000 || longer > 5*written+20_000 {
			t.Errorf("%s: four times the length makes %d nodes of %d, and %d bytes of %d", name, more, nodes, longer, written)
		}
	}
	markuptest.CostsItsLength(t, markuptest.HTML, 128<<10, func(source string) { convertHTML(source) })
}

func TestHostileMarkdownCostsItsLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.Markdown, 64<<10, func(source string) {
		if content := markup.FromMarkdown(source).HTML(page); len(content) > 40*len(source) {
			t.Errorf("%d bytes of HTML from %d", len(content), len(source))
		}
	})
}

func FuzzHTMLToText(f *testing.F) {
	for _, source := range markuptest.HTML(2 << 10) {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		markuptest.Bounded(t, len(source), func() {
			document, _ := markup.Parse(source, markup.Limits{})
			if document.Type != html.DocumentNode {
				t.Error("no document")
			}
			for _, form := range []markup.Form{markup.Plain, markup.Markdown} {
				if text, _ := markup.Text(document, form, 64<<10); len(text) > 80<<10 {
					t.Errorf("%d bytes of text", len(text))
				}
			}
		})
	})
}

func FuzzMarkdownToHTML(f *testing.F) {
	for _, source := range markuptest.Markdown(2 << 10) {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		markuptest.Bounded(t, len(source), func() { markup.FromMarkdown(source).HTML(page) })
		markuptest.Bounded(t, len(source), func() { markup.FromMarkdown(source).Text(markup.Plain, 0) })
		markuptest.Bounded(t, len(source), func() {
			for range markup.FromMarkdown(source).Pieces(500) {
			}
		})
	})
}

package markup_test

import (
	"strings"
	"testing"

	"inbox/internal/markup"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

// TestHTMLAnswersAsText: code keeps its indentation, links their addresses, and cells their distance.
func TestHTMLAnswersAsText(t *testing.T) {
	for source, want := range map[string]string{
		"<p>Run:</p><pre><code>if x:\n    y()\n</code></pre>":                    "Run:\n\n    if x:\n        y()",
		`See <a href="https://x.test/a?b=1&amp;c=2">the page</a>.`:               "See the page <https://x.test/a?b=1&c=2>.",
		"<table><tr><td>Pear</td><td>3</td></tr><tr><td>Fig</td><td>4</td></tr>": "Pear | 3\nFig | 4",
		"<ul><li>one</li><li>two</li></ul>":                                      "- one\n- two",
		"One<br>two &amp; three<script>alert(1)</script><div>four</div>":         "One\ntwo & three\nfour",
		"<STYLE>x</style >kept":                                                  "kept",
		"a < b &lt;b&gt;":                                                        "a < b <b>",
		"<p>x" + strings.Repeat("y", 1<<20):                                      "<p>x" + strings.Repeat("y", 1<<20)[:(1<<20)-4] + "\n\n[The text was cut, because its HTML is very long.]",
	} {
		want = strings.TrimPrefix(want, "<p>")
		parts := []normalized.Part{normalized.Text("before"), {Kind: normalized.PartText, MIME: "text/html; charset=utf-8", Content: source}}
		if got := markup.PlainText(parts); got != "before\n\n"+want {
			t.Errorf("%.100q is\n%.300s\nwant\n%.300s", source, got, want)
		}
		if parts[1].Content != source {
			t.Error("the parts of the caller changed")
		}
	}
	marked := markup.MarkdownText([]normalized.Part{{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: `<b>a</b> <a href="https://x.test/">b</a> *c*`}})
	if want := `**a** [b](https://x.test/) \*c\*`; marked != want {
		t.Errorf("%s, want %s", marked, want)
	}
}

func TestTextsOfHTMLSayWhatPagesSay(t *testing.T) {
	markuptest.SameTextOn(t, func(words string) string { return words }, func(one markuptest.Answer) string {
		if one.MIME == normalized.MIMEHTML {
			return markup.PlainText([]normalized.Part{{Kind: normalized.PartText, MIME: one.MIME, Content: one.Content}})
		}
		text, _ := markup.From(one.MIME, one.Content).Text(markup.Plain, 0)
		return text
	})
}

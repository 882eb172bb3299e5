package markup

import (
	"strings"
	"testing"
)

// TestEmptyBlocksKeepWordsApart: an element that shows nothing still ends the line before it, as in a browser.
func TestEmptyBlocksKeepWordsApart(t *testing.T) {
	same := func(content string) string { return content }
	for _, block := range []string{
		"<p></p>", "<div></div>", "<div> </div>", "<ul></ul>", "<ul><li></li></ul>", "<blockquote></blockquote>", "<blockquote><p> </p></blockquote>", "<h1></h1>", "<pre></pre>",
		"<table></table>", "<table><tr><td></td></tr></table>", "<section></section>", "<p><b></b></p>", "<dl><dt></dt></dl>", "<div><p></p></div>", "<div><div></div><div></div></div>", "<details></details>", "<b><p></p></b>", "<p><script>x</script></p>",
	} {
		for _, around := range []string{"one<div>two%</div>", "<div>%one</div>two", "<div><p>three</p>one</div>two", "one<div>two<p>three</p></div>", "one%two", "<div>one%two</div>", "<ul><li>one%two</li></ul>", "<blockquote>one%two</blockquote>", "<b>one%two</b>", "<table><tr><td>one%two</td></tr></table>", "<a href=https://x.test>one%two</a>"} {
			source := strings.Replace(around, "%", block, 1)
			for name, form := range map[string]func(Document) string{
				"a page":        func(d Document) string { return d.HTML(Page{Sanitize: same}) },
				"a simple page": func(d Document) string { return d.HTML(Page{Simple: true, Sanitize: same}) },
				"plain text":    func(d Document) string { text, _ := d.Text(Plain, 0); return text },
				"Markdown":      func(d Document) string { text, _ := d.Text(Markdown, 0); return text },
			} {
				if got := form(FromHTML(source)); strings.Contains(got, "onetwo") {
					t.Errorf("%s on %s: %s", source, name, got)
				}
			}
		}
	}
}

package markup

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for _, one := range []struct{ source, markdown, plain string }{
		{"<p>a <b>bold</b> <i> it </i>x</p><p>b</p>", "a **bold** *it* x\n\nb", "a bold it x\n\nb"},
		{"<b>x</b><b>y</b><strong><b>z</b></strong>", "**xyz**", "xyz"},
		{"<del><p>of</p> <p>it</p></del>!", "~~of~~\n\n~~it~~\n\n!", "~~of~~\n\n~~it~~\n\n!"},
		{"<b></b>a<i> </i>b", "a b", "a b"},
		{"<blockquote><p>q1</p><p>q2<br>q3</p></blockquote>after", "> q1\n> \n> q2  \n> q3\n\nafter", "> q1\n> \n> q2\n> q3\n\nafter"},
		{"<blockquote>a<blockquote>b</blockquote></blockquote>c", "> a\n> \n> > b\n\nc", "> a\n> \n> > b\n\nc"},
		{"<ul><li>a<li>b<ul><li>c<ol start=3><li>d</ol></ul></ul><p>x", "- a\n- b\n  - c\n    3. d\n\nx", "- a\n- b\n  - c\n    3. d\n\nx"},
		{"<ul><li><p>x</p><blockquote>q</blockquote></li></ul>", "- x\n\n  > q", "- x\n\n  > q"},
		{"<h2>T <b>x</b></h2>text", "## T **x**\n\ntext", "T x\n\ntext"},
		{"<h1></h1>text", "text", "text"},
		{"<pre><code class='language-go'>if a {\n\n\tb ``` \n}</code></pre>z", "````go\nif a {\n\n\tb ``` \n}\n````\n\nz", "    if a {\n\n    \tb ``` \n    }\n\nz"},
		{"<blockquote>a<pre>b\nc</pre></blockquote>", "> a\n> \n> ```\n> b\n> c\n> ```", "> a\n> \n>     b\n>     c"},
		{"<p>use <code>a`b</code> now</p><hr>c", "use ``a`b`` now\n\n* * *\n\nc", "use a`b now\n\n* * *\n\nc"},
		{`<a href="https://a.b/c">our <b>shop</b></a>.`, "[our **shop**](https://a.b/c).", "our shop <https://a.b/c>."},
		{`<a href="https://a.b/">https://a.b</a> <a href="mailto:a@b.c">a@b.c</a> <a href="mailto:a@b.c">Ann</a>`,
			"[https://a.b](https://a.b/) [a@b.c](mailto:a@b.c) [Ann](mailto:a@b.c)", "https://a.b a@b.c Ann <a@b.c>"},
		{`<a href="javascript:x">a</a><a href="https://a.b/(x y)">[b]</a><a href="https://c.d"></a>`, `a[\[b\]](<https://a.b/(x%20y)>)`, "a[b] <https://a.b/(x y)>"},
		{`<a href="https://x.y"><img src="https://i.j/k.png" alt="pic"></a>`, "[![pic](https://i.j/k.png)](https://x.y)", "pic <https://x.y>"},
		{`<img src="data:x" alt="a"><img src="cid:x" alt="b c">`, "a![b c](cid:x)", "ab c"},
		{"<table><caption>C<tr><th>Item</th><th>Pr|ice</th></tr><tr><td>Tea<td>1<br>2</table>x", "C\n\n| Item | Pr\\|ice |\n|------|---------|\n| Tea  | 1 2     |\n\nx", "C\nItem | Pr|ice\nTea | 1\n2\n\nx"},
		{"<table><tr><td>a<td>b<tr><td>c</table>", "a | b\nc", "a | b\nc"},
		{"<div>a</div><div>b</div>", "a\n\nb", "a\nb"},
		{"<p># no</p><p>1. x - * _a_ a_b **c**</p>", "\\# no\n\n1\\. x - * \\_a\\_ a_b \\*\\*c\\*\\*", "# no\n\n1. x - * _a_ a_b **c**"},
		{"<p>&gt; no</p><p>- no</p><p>---</p><p>a<br>--<br>=</p>", "\\> no\n\n\\- no\n\n\\---\n\na  \n\\--  \n\\=", "> no\n\n- no\n\n---\n\na\n--\n="},
		{"<p>--<br>Ann</p><p>a &lt; b &lt;b&gt; [x](y) &amp;lt; c:\\*</p>", "--  \nAnn\n\na < b &lt;b&gt; [x\\](y) \\&lt; c:\\\\\\*", "--\nAnn\n\na < b <b> [x](y) &lt; c:\\*"},
		{"<p>see https://a.b/_c_*d*</p>", "see https://a.b/_c_*d*", "see https://a.b/_c_*d*"},
		{"<h1>" + strings.Repeat("long ", 300) + "<p>x", strings.TrimSpace(strings.Repeat("long ", 300)) + "\n\nx", strings.TrimSpace(strings.Repeat("long ", 300)) + "\n\nx"},
		{"<ruby>漢<rt>かん</ruby><math><mi>x</mi><annotation>x^2</annotation></math>", "漢(かん)x^2", "漢(かん)x^2"},
	} {
		document, _ := Parse(one.source, Limits{})
		if got, cut := Text(document, Markdown, 0); got != one.markdown || cut {
			t.Errorf("%s: markdown\n%q, want\n%q", one.source, got, one.markdown)
		}
		if got, cut := Text(document, Plain, 0); got != one.plain || cut {
			t.Errorf("%s: plain\n%q, want\n%q", one.source, got, one.plain)
		}
	}
}

// TestOutputIsBounded: neither prefixes nor links nor code grow over the limit.
func TestOutputIsBounded(t *testing.T) {
	for _, source := range []string{
		strings.Repeat("<blockquote>", 400) + strings.Repeat("x<br>", 20_000), strings.Repeat("<ol><li>", 400) + strings.Repeat("x<br>", 20_000),
		strings.Repeat("<blockquote>", 20) + "<pre>" + strings.Repeat("\n", 100_000) + "x", strings.Repeat("word ", 50_000), strings.Repeat("w", 200_000),
		strings.Repeat(`<a href="https://`+strings.Repeat("a", 8000)+`">x</a>`, 50), "<table><tr><th>x" + strings.Repeat("<tr><td>y", 20_000),
	} {
		document, _ := Parse(source, Limits{})
		for _, form := range []Form{Plain, Markdown} {
			if text, cut := Text(document, form, 64<<10); len(text) > 64<<10+maxAddress+200 || !cut && len(text) > 64<<10 {
				t.Errorf("%.40s: %d bytes, cut %v", source, len(text), cut)
			}
		}
	}
}

package markup

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The pages of the tests: one that knows everything, and one like Mastodon's. They keep more than any page of ours.
var (
	rich   = Page{Sanitize: permitted.Sanitize}
	simple = Page{Simple: true, Sanitize: permitted.Sanitize}
)

var permitted = func() *bluemonday.Policy {
	policy := bluemonday.UGCPolicy()
	policy.AllowAttrs("start").OnElements("ol")
	return policy
}()

func TestPlainTextOfMarkdown(t *testing.T) {
	for source, want := range map[string]string{
		"# Title\n\nA *word*, **bold**, ~~old~~ and `code`.": "Title\n\nA word, bold, ~~old~~ and code.",
		"one\ntwo":                          "one\ntwo",
		"- a\n- b\n  1. c\n  2. d":          "- a\n- b\n  1. c\n  2. d",
		"> quoted\n> more\n\nmine":          "> quoted\n> more\n\nmine",
		"```go\nif a {\n\tb\n}\n```\nafter": "    if a {\n    \tb\n    }\n\nafter",
		"[our shop](https://a.b/c) https://a.b <https://c.d> [a@b.c](mailto:a@b.c)": "our shop <https://a.b/c> https://a.b https://c.d a@b.c",
		"![a cat](https://a.b/c.png) ![](https://a.b/d.png)":                        "a cat <https://a.b/c.png> <https://a.b/d.png>",
		"| a | b |\n|---|---|\n| 1 | 2 |":                                           "a | b\n1 | 2",
		"- [x] done\n- [ ] open":                                                    "- [x] done\n- [ ] open",
		"a Vec<String> and <b>this</b><br>b":                                        "a Vec<String> and this\nb",
		"use <script> and <T> tags":                                                 "use <script> and <T> tags",
		"<div>\nx <script>y\n</div>\n\nz":                                           "<div> x <script>y </div>\n\nz",
		"<Foo>\n\nx":                                                                "<Foo>\n\nx",
		"---\n\na":                                                                  "* * *\n\na",
		"2*3*4 is a*b, *not* this; un**doubted**ly":                                 "2*3*4 is a*b, not this; undoubtedly",
		"<p>The answer is <b>42</b>.</p>":                                           "The answer is 42.",
		"Use vector<int> here. Press <Enter>.":                                      "Use vector<int> here. Press <Enter>.",
		"Dear <name>,":                                                              "Dear <name>,",
		"Send it to <address>, then SELECT * FROM <table>":                          "Send it to <address>, then SELECT * FROM <table>",
		"if a<b and c>d, {\"x\": \"<b>\"}":                                          "if a<b and c>d, {\"x\": \"<b>\"}",
		"if a<b and c>d, then <b>this</b>":                                          "if a<b and c>d, then this",
		"Use <b> for bold: <b>so</b>, and <i> alone":                                "Use <b> for bold: so, and <i> alone",
		"<b>so</b>, and </b> ends it":                                               "so, and </b> ends it",
		"x <!-- <b> --> y </b>":                                                     "x y </b>",
		"<i title=\"<b>\">x</i> y</b>":                                              "x y</b>",
		"<img alt src=\"https://x.example/p\"> <details open><summary>s</summary>\n\nx\n\n</details>": "<https://x.example/p>\n\ns\n\nx",
		"<pre>\na  b\n</pre>\n\nnext":              "    a  b\n\nnext",
		"f=x**2 + y**2, (a+b)**2 - c**2, 2**3**4":  "f=x**2 + y**2, (a+b)**2 - c**2, 2**3**4",
		"H**2**O, **bold**2, CO**2** and **x 2**3": "H2O, bold2, CO2 and x 23",
		"**/etc/**. and */a/*.":                    "/etc/. and /a/.",
		"./a/*.go, /etc/*/x, src/**/*.ts **b**":    "./a/*.go, /etc/*/x, src/**/*.ts b",
		"An <img> needs no end tag":                "An <img> needs no end tag",
		"|a|b|\n|-|-|\n|`x || y`|[l](https://x.example/)|\n|1|2|3 [m](https://y.example/)|": "a | b\nx || y | l <https://x.example/>\n1 | 2|3 m <https://y.example/>",
		"```\n|a|b|\n|-|-|\n|1|2|3|\n```":                     "    |a|b|\n    |-|-|\n    |1|2|3|",
		"<address>\n\nnext":                                   "<address>\n\nnext",
		"one <p> two <br> x":                                  "one\n\ntwo\nx",
		"x <?php echo 1; ?> and <!DOCTYPE html><!-- note -->": "x <?php echo 1; ?> and <!DOCTYPE html>",
		"<?php\necho 1;\n?>":                                  "<?php echo 1; ?>",
		"<script>\nx()\n</script>":                            "<script> x() </script>",
	} {
		if got, cut := FromMarkdown(source).Text(Plain, 0); got != want || cut {
			t.Errorf("%q:\n got %q\nwant %q", source, got, want)
		}
	}
}

func TestEntitiesAtTheEnd(t *testing.T) {
	for source, want := range map[string]string{"&copy;": "©", "&#169;": "©", "a &auml;\nb": "a ä\nb", "\\&copy;": "&copy;", "**&lt;** &x;": "< &x;", "\\\\&copy;": "\\©"} {
		if got, _ := FromMarkdown(source).Text(Plain, 0); got != want {
			t.Errorf("%q: %q", source, got)
		}
	}
}

// TestAddressesAreWhole: a token in base64url ends in - or _, and goldmark's own extension takes _ and ~ off the end.
func TestAddressesAreWhole(t *testing.T) {
	for text, want := range map[string]string{
		"https://x.example/?a=1&b=2":                     "https://x.example/?a=1&b=2",
		"https://x.example/policy/abc_":                  "https://x.example/policy/abc_",
		"https://x.example/policy/_-abc-":                "https://x.example/policy/_-abc-",
		"https://x.example/~a/b~":                        "https://x.example/~a/b~",
		"https://x.example/a_b_c":                        "https://x.example/a_b_c",
		"https://x.example/wiki/A_(b)":                   "https://x.example/wiki/A_(b)",
		"(see https://x.example/a)":                      "https://x.example/a",
		"https://x.example/a.":                           "https://x.example/a",
		"https://x.example/a?!":                          "https://x.example/a",
		"https://x.example/a, and":                       "https://x.example/a",
		"https://x.example:8443/a#b":                     "https://x.example:8443/a#b",
		"https://localhost/a":                            "https://localhost/a",
		"https://x.example/ü/日本":                         "https://x.example/ü/日本",
		"https://x.example/a。次":                          "https://x.example/a",
		"\"https://x.example/a\"":                        "https://x.example/a",
		"<https://x.example/a>":                          "https://x.example/a",
		"https://x.example/a[1]":                         "https://x.example/a[1]",
		"https:// x":                                     "",
		"xhttps://x.example":                             "",
		"https://x.example/a%20b&amp=1":                  "https://x.example/a%20b&amp=1",
		"https://x.example/" + strings.Repeat("a", 3000): "https://x.example/" + strings.Repeat("a", 3000),
	} {
		if got := firstLink(FromText(text)); got != want {
			t.Errorf("text %q leads to %q", text, got)
		}
		if got, _ := url.PathUnescape(firstLink(FromMarkdown(text))); got != strings.ReplaceAll(want, "%20", " ") {
			t.Errorf("Markdown %q leads to %q", text, got)
		}
	}
	for source, want := range map[string]string{
		"_https://x.example/a_":    "https://x.example/a",
		"**https://x.example/a**":  "https://x.example/a",
		"~~https://x.example/a_~~": "https://x.example/a_",
	} {
		if got := firstLink(FromMarkdown(source)); got != want {
			t.Errorf("%q leads to %q", source, got)
		}
	}
}

func firstLink(d Document) string {
	for node := range d.body.Descendants() {
		if node.DataAtom == atom.A {
			return attribute(node, "href")
		}
	}
	return ""
}

// corpus are answers as models write them, in the files that package markuptest has too.
func corpus(t testing.TB) (sources []string) {
	t.Helper()
	files, err := filepath.Glob("markuptest/testdata/answers/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no answers in markuptest: %v", err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, strings.Split(string(content), "\n%%%\n")...)
	}
	return sources
}

// words are those of a tree, with the marks that every form has.
func words(n *html.Node) string {
	var out strings.Builder
	var gather func(*html.Node)
	gather = func(n *html.Node) {
		for child := n.FirstChild; child != nil; child = child.NextSibling {
			switch {
			case child.Type == html.TextNode:
				out.WriteString(child.Data)
			case block(child.DataAtom) || margins[child.DataAtom] > 0 || child.DataAtom == atom.Br || child.DataAtom == atom.Td || child.DataAtom == atom.Th:
				out.WriteString(" ")
				gather(child)
				out.WriteString(" ")
			case child.DataAtom == atom.Input:
				out.WriteString(checkboxOf(child) + " ")
			case child.DataAtom == atom.Img:
				out.WriteString(attribute(child, "alt"))
				if attribute(child, "alt") == "" {
					out.WriteString(attribute(child, "src"))
				}
			default:
				gather(child)
			}
		}
	}
	gather(n)
	return strings.Join(strings.Fields(out.String()), " ")
}

func links(n *html.Node) (addresses []string) {
	for node := range n.Descendants() {
		if node.DataAtom == atom.Img && node.Parent.DataAtom == atom.A {
			continue // the link leads elsewhere
		}
		if address := attribute(node, "href") + attribute(node, "src"); address != "" && linked(address, "http", "https", "mailto") {
			if plain, err := url.PathUnescape(address); err == nil { // sanitizers escape what is not ASCII
				address = plain
			}
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// without leaves out the marks by which some forms show structure: bars between cells, rules.
func without(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("|", " ", "* * *", " ").Replace(text)), " ")
}

func TestFormsSayTheSame(t *testing.T) {
	for _, source := range corpus(t) {
		sayTheSame(t, source)
	}
}

func sayTheSame(t *testing.T, source string) {
	t.Helper()
	d := FromMarkdown(source)
	want, addresses := without(words(d.body)), links(d.body)
	for name, page := range map[string]Page{"rich": rich, "simple": simple} {
		read := FromHTML(d.HTML(page))
		if diff := cmp.Diff(want, without(words(read.body))); diff != "" {
			t.Errorf("%s:\n%s\n%s", name, source, diff)
		}
		if diff := cmp.Diff(addresses, links(read.body)); diff != "" {
			t.Errorf("%s: links of\n%s\n%s", name, source, diff)
		}
	}

	markdown, _ := d.Text(Markdown, 0)
	if again := FromMarkdown(markdown); without(words(again.body)) != want {
		t.Errorf("Markdown of\n%s\nis\n%s\n%s", source, markdown, cmp.Diff(want, without(words(again.body))))
	}
	plain, _ := d.Text(Plain, 0)
	said := strings.ReplaceAll(plain, "~~", "")
	for _, address := range addresses {
		said = strings.NewReplacer(" <"+address+">", "", " <"+strings.ReplaceAll(address, " ", "%20")+">", "", " <"+strings.TrimPrefix(address, "mailto:")+">", "").Replace(said)
	}
	for word := range strings.FieldsSeq(want) {
		if !strings.Contains(plain, word) && !strings.Contains(said, word) { // marks and addresses stand between words and their punctuation
			t.Errorf("plain text of\n%s\nhas not %q:\n%s", source, word, plain)
		}
	}
	for _, address := range addresses {
		if !strings.Contains(decoded(plain), decoded(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "http://"))) {
			t.Errorf("plain text of\n%s\nhas not %s:\n%s", source, address, plain)
		}
	}
}

func TestTextTypesInAnySpelling(t *testing.T) {
	for mime, want := range map[string]string{
		"Text/Markdown": "a &", "text/markdown; charset=x-unknown": "a &", "TEXT/HTML;charset=latin1": "*a* &", "text/plain; charset=utf-8": "*a* &amp;", "": "*a* &amp;",
	} {
		if got := words(From(mime, "*a* &amp;").body); got != want {
			t.Errorf("%s: %q, want %q", mime, got, want)
		}
	}
}

func TestPiecesAreTheWhole(t *testing.T) {
	for _, source := range corpus(t) {
		whole := FromMarkdown(source)
		want, addresses := without(words(whole.body)), links(whole.body)
		for _, limit := range []int{1, 7, 40, 200, 500} {
			var said, led []string
			for piece := range FromMarkdown(source).Pieces(limit) {
				said, led = append(said, words(piece.body)), append(led, links(piece.body)...)
				sayTheSamePiece(t, piece)
			}
			// A table repeats its head, so words are compared without blanks and heads.
			if got := without(strings.Join(said, " ")); !strings.Contains(source, "|") && squeezed(got) != squeezed(want) {
				t.Errorf("pieces of %d of\n%s\n%s", limit, source, cmp.Diff(squeezed(want), squeezed(got)))
			}
			for _, address := range addresses {
				if !strings.Contains(strings.Join(led, " "), address) {
					t.Errorf("pieces of %d of\n%s\ndo not lead to %s", limit, source, address)
				}
			}
		}
	}
}

func sayTheSamePiece(t *testing.T, piece Document) {
	t.Helper()
	if again := FromHTML(piece.HTML(rich)); without(words(again.body)) != without(words(piece.body)) {
		t.Errorf("a piece is not whole: %s", cmp.Diff(without(words(piece.body)), without(words(again.body))))
	}
}

func squeezed(text string) string { return strings.ReplaceAll(text, " ", "") }

func TestPiecesKeepTheirShape(t *testing.T) {
	list := FromMarkdown("3. one\n4. two\n5. three\n\n> first paragraph\n>\n> second paragraph\n\n| h | i |\n|---|---|\n| aaaa | b |\n| cccc | d |\n\nएक 👩‍👩‍👧‍👦👩‍👩‍👧‍👦 กำกำ")
	var got []string
	for piece := range list.Pieces(8) {
		got = append(got, strings.ReplaceAll(piece.HTML(rich), "\n", ""))
	}
	want := []string{
		`<ol start="3"><li>one</li><li>two</li></ol>`, `<ol start="5"><li>three</li></ol>`,
		`<blockquote><p>first</p></blockquote>`, `<blockquote><p>paragrap</p></blockquote>`, `<blockquote><p>h</p><p>second</p></blockquote>`, `<blockquote><p>paragrap</p></blockquote>`, `<blockquote><p>h</p></blockquote>`,
		`<table><thead><tr><th>h</th><th>i</th></tr></thead><tbody><tr><td>aaaa</td><td>b</td></tr></tbody></table>`,
		`<table><thead><tr><th>h</th><th>i</th></tr></thead><tbody><tr><td>cccc</td><td>d</td></tr></tbody></table>`,
		`<p>एक</p>`, `<p>👩‍👩‍👧‍👦</p>`, `<p>👩‍👩‍👧‍👦</p>`, `<p>กำกำ</p>`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzFormsSayTheSame(f *testing.F) {
	for _, source := range corpus(f) {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4<<10 || strings.Contains(source, "\x00") {
			return
		}
		d := FromMarkdown(source)
		want := without(words(d.body))
		if got := without(words(FromHTML(d.HTML(rich)).body)); got != want {
			t.Errorf("%q: %s", source, cmp.Diff(want, got))
		}
	})
}

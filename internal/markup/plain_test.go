package markup

import "testing"

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
	} {
		if got, ok := PlainText(source, 0); got != want || !ok {
			t.Errorf("%q:\n got %q\nwant %q", source, got, want)
		}
	}
}

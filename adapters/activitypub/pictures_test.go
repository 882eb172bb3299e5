package activitypub

import (
	"slices"
	"strings"
	"testing"

	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

// TestPicturesOfAnswersDoNotVanish: a picture in Markdown is attached with its description, or is a link.
func TestPicturesOfAnswersDoNotVanish(t *testing.T) {
	cases := []struct {
		name, source, want string
		attached           []string // type, address and description
	}{
		{"alone", "![a cat](https://i.example/cat.png)", "", []string{"Image https://i.example/cat.png a cat"}},
		{"between words", "Look:\n![a *grey* cat](https://i.example/cat.JPG?x=1 \"title\")\nNice?", "<p>Look:<br/>\n<br/>\nNice?</p>", []string{"Image https://i.example/cat.JPG?x=1 a grey cat"}},
		{"at the end of a paragraph", "Look:\n![cat](https://i.example/cat.webp)\n\nNice?", "<p>Look:</p>\n<p>Nice?</p>", []string{"Image https://i.example/cat.webp cat"}},
		{"without description", "![](https://i.example/cat.gif)", "", []string{"Image https://i.example/cat.gif "}},
		{"of unknown kind", "![cat](https://i.example/cat)", `<p><a href="https://i.example/cat" rel="nofollow noreferrer">cat</a></p>`, nil},
		{"of unknown kind without description", "![](https://i.example/cat)", `<p><a href="https://i.example/cat" rel="nofollow noreferrer">https://i.example/cat</a></p>`, nil},
		{"not by https", "![cat](http://i.example/cat.png)", `<p><a href="http://i.example/cat.png" rel="nofollow noreferrer">cat</a></p>`, nil},
		{"without an address", "a ![cat](cat.png) ![](x.png) b ![d](data:image/png;base64,AAAA)", "<p>a cat  b d</p>", nil},
		{"in a link", "[![cat](https://i.example/cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">cat</a></p>`, []string{"Image https://i.example/cat.png cat"}},
		{"in a link without description", "[![](https://i.example/cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">https://i.example/cat.png</a></p>`, []string{"Image https://i.example/cat.png "}},
		{"in a link, without an address and words", "[![](cat.png)](https://a.example/)", `<p><a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a></p>`, nil},
		{"none, but a link without words", "a [](https://a.example/) b", `<p>a <a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a> b</p>`, nil},
		{"none, but HTML that is not shown", "one\n\n<a href=\"https://a.example/\"></a>\n\ntwo", "<p>one</p>\n\n<p>two</p>", nil},
		{"in a list", "- ![a](https://i.example/1.png)\n- b", "<ul>\n\n<li>b</li>\n</ul>", []string{"Image https://i.example/1.png a"}},
		{"twice", "![a](https://i.example/1.png)![a](https://i.example/1.png)", "", []string{"Image https://i.example/1.png a"}},
		{"more than servers show", "![1](https://i.example/1.png)![2](https://i.example/2.png)![3](https://i.example/3.png)![4](https://i.example/4.png)![5](https://i.example/5.png)",
			`<p><a href="https://i.example/5.png" rel="nofollow noreferrer">5</a></p>`,
			[]string{"Image https://i.example/1.png 1", "Image https://i.example/2.png 2", "Image https://i.example/3.png 3", "Image https://i.example/4.png 4"}},
		{"a film", "![f](https://i.example/f.mp4)", "", []string{"Video https://i.example/f.mp4 f"}},
	}
	for _, c := range cases {
		made := &note{}
		if got := notetext.HTML(normalized.Markdown(c.source), made.picture); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		var attached []string
		for _, file := range made.Attachment {
			attached = append(attached, file.Type+" "+file.URL+" "+file.Name)
		}
		if !slices.Equal(attached, c.attached) {
			t.Errorf("%s: attached %q, want %q", c.name, attached, c.attached)
		}
	}
	for content, want := range map[string]string{
		`<p>x</p><p><img src="https://i.example/1.png" alt="one"></p>`: "<p>x</p>",
		`<p></p><p class='a'></p><p>x</p>`:                             "<p>x</p>",
		`<p>x</p><p><a href='https://a.example/'></a></p>`:             `<p>x</p><p><a href="https://a.example/" rel="nofollow noreferrer">https://a.example/</a></p>`,
		`<p>x</p><p><a href="javascript:alert(1)"></a></p>`:            "<p>x</p>",
	} {
		made := &note{}
		got := notetext.HTML(normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: content}, made.picture)
		if pictured := strings.Contains(content, "<img"); got != want || pictured && (len(made.Attachment) != 1 || made.Attachment[0].Name != "one") {
			t.Errorf("%s:\n got %s, %+v\nwant %s", content, got, made.Attachment, want)
		}
	}
}

package chat

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"

	nethtml "golang.org/x/net/html"

	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
	"inbox/policypart"
)

func rendered(source string) string { return markup.FromMarkdown(source).HTML(page) }

func TestRendered(t *testing.T) {
	for source, want := range map[string]string{
		"":                              "",
		"**a** *b* ~~c~~ `d`":           "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d</code></p>",
		"one\ntwo":                      "<p>one<br>\ntwo</p>",
		"# Title":                       "<h3>Title</h3>",
		"###### Small":                  "<h6>Small</h6>",
		"- a\n- b":                      "<ul>\n<li>a</li>\n<li>b</li>\n</ul>",
		"3. c":                          "<ol start=\"3\">\n<li>c</li>\n</ol>",
		"```js\nif (a < b) {}\n```":     "<pre><code>if (a &lt; b) {}\n</code></pre>",
		"[x](https://a.example/?b=1&c)": `<p><a href="https://a.example/?b=1&amp;c" rel="nofollow noreferrer noopener" target="_blank">x</a></p>`,
		"https://a.example":             `<p><a href="https://a.example" rel="nofollow noreferrer noopener" target="_blank">https://a.example</a></p>`,
		"![cat](https://a.example/c)":   `<p><a href="https://a.example/c" rel="nofollow noreferrer noopener" target="_blank">cat</a></p>`,
		"![](https://a.example/c)":      `<p><a href="https://a.example/c" rel="nofollow noreferrer noopener" target="_blank">https://a.example/c</a></p>`,
		"[![x](https://b.c/d)](https://a.example)": `<p><a href="https://a.example" rel="nofollow noreferrer noopener" target="_blank">x</a></p>`,
		"[x](javascript:alert(1))":                 "<p>x</p>",
		"[x](/relative)":                           "<p>x (/relative)</p>",
		"a <b>bold</b> <script>x</script>":         "<p>a <b>bold</b> &lt;script&gt;x&lt;/script&gt;</p>",
	} {
		if got := strings.TrimSpace(rendered(source)); got != want {
			t.Errorf("%q:\n got %s\nwant %s", source, got, want)
		}
	}
}

var permittedLink = regexp.MustCompile(`^(https?|mailto):`)

// checkHTML demands that a page can show it: known elements and attributes, and links that lead elsewhere.
func checkHTML(t *testing.T, source, content string) {
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	for tokens.Next() != nethtml.ErrorToken {
		token := tokens.Token()
		if token.Type == nethtml.CommentToken || token.Type == nethtml.DoctypeToken {
			t.Errorf("%q gives %s", source, content)
		}
		if token.Type != nethtml.StartTagToken && token.Type != nethtml.SelfClosingTagToken {
			continue
		}
		switch token.Data {
		case "script", "style", "img", "iframe", "object", "embed", "svg", "math", "form", "input", "base", "link", "meta", "video", "audio":
			t.Errorf("%q gives <%s>: %s", source, token.Data, content)
		}
		for _, attribute := range token.Attr {
			switch {
			case attribute.Key == "href" && permittedLink.MatchString(attribute.Val), attribute.Key == "start",
				attribute.Key == "target" && attribute.Val == "_blank", attribute.Key == "rel" && strings.Contains(attribute.Val, "nofollow"):
			default:
				t.Errorf("%q gives %s=%q: %s", source, attribute.Key, attribute.Val, content)
			}
		}
	}
}

func FuzzRendered(f *testing.F) {
	for _, seed := range []string{
		"<script>alert(1)</script>", `<img src=x onerror=alert(1)>`, "[a](javascript&#58;alert(1))", "[a](JaVaScRiPt:alert(1))", "<a href='data:text/html,x'>y</a>",
		"![a](data:image/svg+xml,<svg onload=alert(1)>)", "<svg><script>alert(1)</script></svg>", "[a](https://x \"onmouseover=alert(1)\")",
		"<https://x\" onclick=alert(1)>", "`<img src=x onerror=alert(1)>`", "|a|\n|-|\n|<script>|", "[a]: javascript:alert(1)\n[a]", "&lt;script&gt;",
		"<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>", "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
		"[x](vbscript:msgbox)", "[x](file:///etc/passwd)", "<javascript:alert(1)>", "- [ ] <input onfocus=alert(1) autofocus>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) { checkHTML(t, source, rendered(source)) })
}

// TestRenderingsAreKept: a session is read again and again; its answers are rendered once.
func TestRenderingsAreKept(t *testing.T) {
	a := &renderer{}
	first := a.render(normalized.Markdown("**a**"))
	key := sha256.Sum256([]byte(normalized.MIMEMarkdown + "\n**a**"))
	if kept, known := a.renderings.get(key); !known || kept != first || first == "" {
		t.Fatalf("%q is not kept: %q", first, kept)
	}
	a.renderings.kept[key] = "kept"
	if got := a.render(normalized.Markdown("**a**")); got != "kept" {
		t.Errorf("rendered again: %q", got)
	}
	for i := range 100 {
		a.renderings.put(sha256.Sum256([]byte{byte(i)}), strings.Repeat("x", 1<<20))
	}
	if r := &a.renderings; r.bytes > maxRenderings || len(r.kept) != len(r.order) || len(r.kept) == 0 {
		t.Errorf("%d bytes in %d renderings", r.bytes, len(r.kept))
	}
	if _, known := a.renderings.get(key); known {
		t.Error("the oldest stays")
	}
}

func TestHostileMarkdownCostsItsLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.Markdown, 64<<10, func(source string) { rendered(source) })
}

func TestBubblesSayWhatAnswersSay(t *testing.T) {
	markuptest.SameOn(t, func(one markuptest.Answer) string { return markup.From(one.MIME, one.Content).HTML(page) })
}

func TestPolicyLinks(t *testing.T) {
	bubble := func(part normalized.Part) []string {
		answer := &normalized.Response{Parts: []normalized.Part{part}}
		present := func(part policypart.Part) policypart.Part { return part }
		_, addresses := markuptest.Read(t, (&renderer{site: &site{options: Options{Present: present}}}).htmlOf(exchange.TurnRecord{Response: answer}))
		return addresses
	}
	markuptest.PolicyLinks(t, func(one markuptest.Answer) []string {
		return bubble(normalized.Part{Kind: normalized.PartText, MIME: one.MIME, Content: one.Content})
	})
	markuptest.PolicyParts(t, func(part policypart.Part) []string {
		return bubble(normalized.Part{Kind: normalized.PartPolicy, Policy: &part})
	})
}

// TestNothingIsPromisedAfterTheEnd: what the asker was told while the message waited is not said of one that was denied or withdrawn.
func TestNothingIsPromisedAfterTheEnd(t *testing.T) {
	const waits = "This needs an approval first. The answer comes by itself once it is given."
	told := normalized.Response{Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text(waits)}}
	r := &renderer{site: &site{options: Options{Present: func(part policypart.Part) policypart.Part { return part }}}}
	for name, test := range map[string]struct{ state, reason, want string }{
		"waiting":   {exchange.StateWaiting, "approval (reply)", waits},
		"denied":    {exchange.StateRefused, "approval denied", sentenceDenied},
		"expired":   {exchange.StateRefused, "approval expired", sentenceDenied},
		"withdrawn": {exchange.StateCancelled, "", ""},
		"failed":    {exchange.StateFailed, "", sentenceFailed},
	} {
		turn := exchange.TurnRecord{State: test.state, Reason: test.reason, Response: &told}
		if got := r.reply(turn); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if page := r.htmlOf(turn); strings.Contains(page, "by itself") != (test.want == waits) {
			t.Errorf("%s: the page shows %s", name, page)
		}
	}
}

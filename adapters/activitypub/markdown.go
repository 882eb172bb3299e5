package activitypub

import (
	"html"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	nethtml "golang.org/x/net/html"

	"inbox/internal/markup"
)

// markdown keeps its default of omitting raw HTML. A single line break stays one: agents write chat, not books.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Linkify, extension.Strikethrough),
	goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps()),
)

// permitted is what Mastodon keeps (ActivityPub reference, section 6), so that people see what we meant. It starts
// from nothing: bluemonday's ready-made policies allow more.
var permitted = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "span", "del", "s", "pre", "blockquote", "code", "b", "strong", "u", "i", "em",
		"ul", "ol", "li", "ruby", "rt", "rp")
	p.AllowAttrs("href").OnElements("a")
	p.AllowAttrs("translate").Matching(regexp.MustCompile(`^(yes|no)$`)).OnElements("a", "span")
	p.AllowAttrs("lang").Matching(regexp.MustCompile(`^[A-Za-z0-9-]{2,35}$`)).Globally()
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^((h|p|u|dt|e)-[a-z-]+|mention|hashtag|ellipsis|invisible|quote-inline| )+$`)).OnElements("a", "span", "p")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("reversed").Matching(regexp.MustCompile(`^$`)).OnElements("ol")
	p.AllowAttrs("value").Matching(bluemonday.Integer).OnElements("li")
	p.AllowURLSchemes("http", "https", "dat", "dweb", "ipfs", "ipns", "ssb", "gopher", "xmpp", "magnet", "gemini")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(false)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	return p
}()

// boldHeadings shows headings as bold paragraphs; servers drop elements that they do not know, and with them the line
// breaks.
func boldHeadings(content string) string {
	if !strings.Contains(content, "<h") && !strings.Contains(content, "<H") {
		return content
	}
	var out strings.Builder
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	for {
		kind := tokens.Next()
		if kind == nethtml.ErrorToken {
			return out.String()
		}
		raw := string(tokens.Raw())
		if name, _ := tokens.TagName(); len(name) == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6' {
			raw = "<p><strong>"
			if kind == nethtml.EndTagToken {
				raw = "</strong></p>"
			}
		}
		out.WriteString(raw)
	}
}

func sanitize(content string) string {
	return strings.TrimSpace(permitted.Sanitize(boldHeadings(content)))
}

func markdownHTML(source string, attach attachPicture) string {
	rendered, ok := markup.HTML(markdown, source)
	if !ok {
		return plainHTML(source)
	}
	return sanitize(withoutPictures(rendered, attach))
}

// plainHTML makes paragraphs and lines of plain text and links of web addresses in it.
func plainHTML(text string) string {
	var out strings.Builder
	text = strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n")
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if paragraph = strings.Trim(paragraph, "\n"); paragraph == "" {
			continue
		}
		lines := strings.Split(paragraph, "\n")
		for i, line := range lines {
			lines[i] = linkedLine(line)
		}
		out.WriteString("<p>" + strings.Join(lines, "<br>") + "</p>")
	}
	return sanitize(out.String())
}

func linkedLine(line string) string {
	words := strings.Split(line, " ")
	for i, word := range words {
		words[i] = html.EscapeString(word)
		if !strings.HasPrefix(word, "https://") && !strings.HasPrefix(word, "http://") {
			continue
		}
		address := strings.TrimRight(word, ".,;:!?)'\"")
		words[i] = linkHTML(address, address) + html.EscapeString(word[len(address):])
	}
	return strings.Join(words, " ")
}

func linkHTML(href, text string) string {
	return `<a href="` + html.EscapeString(href) + `">` + html.EscapeString(text) + `</a>`
}

// linkMentions turns the first @user@host of each person in the text into an anchor. It touches text outside of
// links only.
func linkMentions(content string, people []person) (linked string, missing []person) {
	for _, one := range people {
		var done bool
		if content, done = linkMention(content, one); !done {
			missing = append(missing, one)
		}
	}
	return content, missing
}

func linkMention(content string, who person) (string, bool) {
	var out strings.Builder
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	done, anchors := false, 0
	for {
		kind := tokens.Next()
		if kind == nethtml.ErrorToken {
			return out.String(), done
		}
		raw := string(tokens.Raw())
		name, _ := tokens.TagName()
		switch {
		case kind == nethtml.StartTagToken && string(name) == "a":
			anchors++
		case kind == nethtml.EndTagToken && string(name) == "a":
			anchors--
		case kind == nethtml.TextToken && anchors == 0 && !done:
			raw, done = replaceMention(raw, who)
		}
		out.WriteString(raw)
	}
}

func replaceMention(text string, who person) (string, bool) {
	written := html.EscapeString(who.Address)
	at := strings.Index(strings.ToLower(text), strings.ToLower(written))
	if at < 0 || len(strings.ToLower(text)) != len(text) {
		return text, false
	}
	after := text[at+len(written):]
	if after != "" && strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-_@", after[0]|0x20) >= 0 {
		return text, false // a longer address that begins alike
	}
	return text[:at] + who.anchor() + after, true
}

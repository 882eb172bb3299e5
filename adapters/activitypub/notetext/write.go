package notetext

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	nethtml "golang.org/x/net/html"

	"inbox/internal/markup"
	"inbox/normalized"
)

// markdown keeps its default of omitting raw HTML. A single line break stays one: agents write chat, not books.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Linkify, extension.Strikethrough),
	goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps()),
)

// permitted is what Mastodon keeps, so that people see what we meant. It starts
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

// Sanitize keeps of HTML what Mastodon keeps.
func Sanitize(content string) string {
	return strings.TrimSpace(permitted.Sanitize(boldHeadings(content)))
}

func markdownHTML(source string, attach Attach) string {
	rendered, ok := markup.HTML(markdown, source)
	if !ok {
		return PlainHTML(source)
	}
	return Sanitize(withoutPictures(rendered, attach))
}

// PlainHTML makes paragraphs and lines of plain text and links of web addresses in it.
func PlainHTML(text string) string {
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

	return Sanitize(out.String())
}

func linkedLine(line string) string {
	words := strings.Split(line, " ")
	for i, word := range words {
		words[i] = html.EscapeString(word)
		if !strings.HasPrefix(word, "https://") && !strings.HasPrefix(word, "http://") {
			continue
		}
		address := strings.TrimRight(word, ".,;:!?)'\"")
		words[i] = Link(address, address) + html.EscapeString(word[len(address):])
	}

	return strings.Join(words, " ")
}

// Link writes a link with its text, both escaped.
func Link(href, text string) string {
	return `<a href="` + html.EscapeString(href) + `">` + html.EscapeString(text) + `</a>`
}

const (
	maxHashtags     = 16  // of one post
	maxHashtagRunes = 100 // more is no word
)

// unlinked are elements in whose text nothing becomes a link: a # in code is a comment, an include or an id.
var unlinked = []string{"a", "code", "pre"}

// LinkHashtags turns the words that begin with # into links, as all servers write them, and returns the words without the
// mark, each once. There are no pages of hashtags here: readers' servers lead to their own by the word, and who reads
// the note anywhere else gets to href.
func LinkHashtags(content, href string) (linked string, words []string) {
	if !strings.Contains(content, "#") {
		return content, nil
	}
	var out strings.Builder
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	for depth := 0; ; {
		kind := tokens.Next()
		if kind == nethtml.ErrorToken {
			return out.String(), words
		}

		raw := string(tokens.Raw())
		name, _ := tokens.TagName()
		switch {
		case kind == nethtml.StartTagToken && slices.Contains(unlinked, string(name)):
			depth++
		case kind == nethtml.EndTagToken && slices.Contains(unlinked, string(name)):
			depth--
		case kind == nethtml.TextToken && depth == 0:
			raw, words = linkWords(raw, href, words)
		}
		out.WriteString(raw)
	}
}

// linkWords links the hashtags in text between tags, which is escaped.
func linkWords(text, href string, words []string) (linked string, all []string) {
	var out strings.Builder
	done := 0
	for at := range len(text) {
		if text[at] != '#' || !mayBegin(text[:at]) {
			continue
		}
		word := hashtagAt(text[at+1:])
		known := slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, word) })
		if word == "" || !known && len(words) >= maxHashtags {
			continue
		}

		if !known {
			words = append(words, word)
		}
		out.WriteString(text[done:at] + `<a href="` + html.EscapeString(href) + `" class="mention hashtag" rel="tag">#<span>` + word + `</span></a>`)
		done = at + 1 + len(word)
	}

	out.WriteString(text[done:])
	return out.String(), words
}

// mayBegin reports whether a hashtag may follow a text: in C#major, a/#b, &#39; and ##x there is none.
func mayBegin(before string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	return size == 0 || !inHashtag(last) && !strings.ContainsRune("&;#/=@\uFFFD", last)
}

func inHashtag(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// hashtagAt returns the word of a hashtag at the beginning of a text; empty = none. A number (#1) is the name of an issue, and
// three or six hexadecimal digits (#fff) are a color.
func hashtagAt(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return !inHashtag(r) })
	if end < 0 {
		end = len(text)
	}

	word := text[:end]
	hex := (len(word) == 3 || len(word) == 6) && strings.Trim(word, "0123456789abcdefABCDEF") == ""
	if hex || !strings.ContainsFunc(word, unicode.IsLetter) || utf8.RuneCountInString(word) > maxHashtagRunes {
		return ""
	}
	return word
}

// HTML is a text as HTML. attach takes the pictures in it, or leaves them as links.
func HTML(part normalized.Part, attach Attach) string {
	switch part.MIME {
	case normalized.MIMEMarkdown:
		return markdownHTML(part.Content, attach)
	case normalized.MIMEHTML:
		return Sanitize(withoutPictures(part.Content, attach))
	}
	return PlainHTML(part.Content)
}

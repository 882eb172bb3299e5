package notetext

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/microcosm-cc/bluemonday"
	nethtml "golang.org/x/net/html"

	"inbox/internal/markup"
	"inbox/normalized"
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

// Sanitize keeps of HTML what Mastodon keeps.
func Sanitize(content string) string { return strings.TrimSpace(permitted.Sanitize(content)) }

// PlainHTML makes paragraphs and lines of plain text and links of web addresses in it.
func PlainHTML(text string) string { return markup.FromText(text).HTML(page(nil)) }

// page is that of a post.
func page(attach Attach) markup.Page {
	return markup.Page{Simple: true, NoMail: true, Sanitize: permitted.Sanitize, Picture: func(address, words string) bool {
		return attach != nil && attach(address, shortAlt(words))
	}}
}

func shortAlt(words string) string {
	if utf8.RuneCountInString(words) <= maxAlt {
		return words
	}
	return string([]rune(words)[:maxAlt-1]) + "…"
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
	linked = MapWords(content, func(text string) string {
		text, words = linkWords(text, href, words)
		return text
	})
	return linked, words
}

// MapWords replaces the text of HTML outside of links and code. The text is escaped.
func MapWords(content string, replace func(text string) string) string {
	var out strings.Builder
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	for depth := 0; ; {
		kind := tokens.Next()
		if kind == nethtml.ErrorToken {
			return out.String()
		}

		raw := string(tokens.Raw())
		name, _ := tokens.TagName()
		switch {
		case kind == nethtml.StartTagToken && slices.Contains(unlinked, string(name)):
			depth++
		case kind == nethtml.EndTagToken && slices.Contains(unlinked, string(name)):
			depth--
		case kind == nethtml.TextToken && depth == 0:
			raw = replace(raw)
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
	return markup.From(part.MIME, part.Content).HTML(page(attach))
}

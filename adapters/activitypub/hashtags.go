package activitypub

import (
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	nethtml "golang.org/x/net/html"
)

const (
	maxHashtags     = 16  // of one post
	maxHashtagRunes = 100 // more is no word
)

// unlinked are elements in whose text nothing becomes a link: a # in code is a comment, an include or an id.
var unlinked = []string{"a", "code", "pre"}

// linkHashtags turns the words that begin with # into links, as all servers write them, and gives the words without the
// mark, each once. There are no pages of hashtags here: readers' servers lead to their own by the word, and whoever reads
// the note anywhere else gets to href.
func linkHashtags(content, href string) (linked string, words []string) {
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

// mayBegin says whether a hashtag may follow a text: in C#major, a/#b, &#39; and ##x there is none.
func mayBegin(before string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	return size == 0 || !inHashtag(last) && !strings.ContainsRune("&;#/=@\uFFFD", last)
}

func inHashtag(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// hashtagAt gives the word of a hashtag at the beginning of a text; empty = none. A number (#1) is the name of an issue, and
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

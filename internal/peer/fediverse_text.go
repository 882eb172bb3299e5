package peer

import (
	"strings"

	"golang.org/x/net/html"
)

// noteText returns the text of a note's HTML without the mentions that it begins with.
func noteText(content string) string {
	var text strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(content))
	for {
		switch tokens.Next() {
		case html.ErrorToken: // the end: reading from a string has no other errors
			return withoutLeadingMentions(strings.TrimSpace(text.String()))
		case html.TextToken:
			text.Write(tokens.Text())
		case html.StartTagToken, html.SelfClosingTagToken:
			if name, _ := tokens.TagName(); string(name) == "br" || string(name) == "p" || string(name) == "li" {
				text.WriteByte('\n')
			}
		}
	}
}

func withoutLeadingMentions(text string) string {
	for strings.HasPrefix(text, "@") {
		end := strings.IndexAny(text, " \n\u00a0")
		if end < 0 {
			return ""
		}
		text = strings.TrimLeft(text[end:], " \n\u00a0")
	}
	return text
}

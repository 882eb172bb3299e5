package mcptool

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain makes text of a stranger fit for a log or a description: valid, trimmed, without control characters other than
// line ends and tabs, and without the invisible ones that change how text is read.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError) {
			return -1
		}
		return r
	}, text))
}

// cut shortens text to at most limit bytes, on the boundary of a letter.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

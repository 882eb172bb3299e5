// Package clip cuts texts to a number of bytes, between two characters.
package clip

import "unicode/utf8"

// Bytes returns the beginning of a text: at most limit bytes, of which the last ones are a whole character. Where the bytes around
// the limit are no UTF-8 it returns limit bytes, so that a caller who cuts a text into pieces of utf8.UTFMax bytes or more always gets on.
func Bytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for end := max(limit, 0); end >= 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:max(limit, 0)]
}

// Marked is Bytes with a mark behind a text that was cut. The mark is not counted.
func Marked(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	return Bytes(text, limit) + mark
}

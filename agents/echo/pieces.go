package echo

import (
	"strings"
	"unicode/utf8"
)

// pieceBytes is how much text one delta carries at most: small enough that a stream is seen to grow, large enough
// that a long mail does not become thousands of rows.
const pieceBytes = 1 << 10

// pieces cuts text after white space where it can and between characters where it must. Joined they are the text.
func pieces(text string) []string {
	var cut []string
	for len(text) > pieceBytes {
		end := strings.LastIndexAny(text[:pieceBytes], " \n") + 1
		if end == 0 {
			end = characterEnd(text, pieceBytes)
		}
		cut = append(cut, text[:end])
		text = text[end:]
	}
	return append(cut, text)
}

// characterEnd moves back from limit to the end of a character. Bytes that are no UTF-8 are cut anywhere.
func characterEnd(text string, limit int) int {
	for end := limit; end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return limit
}

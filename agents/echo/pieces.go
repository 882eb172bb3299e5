package echo

import (
	"strings"

	"inbox/internal/clip"
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
			end = len(clip.Bytes(text, pieceBytes))
		}
		cut = append(cut, text[:end])
		text = text[end:]
	}
	return append(cut, text)
}

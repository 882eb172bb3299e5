package llm

import (
	"fmt"
	"slices"
)

// maxPieces bounds the calls of the model for one summary.
const maxPieces = 64

// bounded leaves out the middle of what is summarized when it would take too many calls, visibly: the start says what it was about, and
// the end what is still open. left counts the bytes, which the summary then names.
func bounded(pieces []string) (some []string, left int) {
	if len(pieces) <= maxPieces {
		return pieces, 0
	}

	from, to := maxPieces/2, len(pieces)-maxPieces/2
	for _, piece := range pieces[from:to] {
		left += len(piece)
	}
	return slices.Concat(pieces[:from], pieces[to:]), left
}

func leftOut(size int) string { return fmt.Sprintf("(left out %d bytes)", size) }

package design

import (
	"slices"
	"strings"
)

// change is what became of a line.
type change int

const (
	kept change = iota
	removed
	added
)

type diffLine struct {
	Change change
	Text   string
}

// maxDiffCells bounds the table of a comparison: the product of the lines that differ. Texts beyond it are shown whole, the old one first.
const maxDiffCells = 1 << 18

// diff compares two texts by lines with a longest common subsequence. Its cost is bounded by maxDiffCells.
func diff(before, after string) []diffLine {
	old, made := strings.Split(before, "\n"), strings.Split(after, "\n")

	var head, tail []diffLine
	for len(old) > 0 && len(made) > 0 && old[0] == made[0] {
		head = append(head, diffLine{kept, old[0]})
		old, made = old[1:], made[1:]
	}
	for len(old) > 0 && len(made) > 0 && old[len(old)-1] == made[len(made)-1] {
		tail = append(tail, diffLine{kept, old[len(old)-1]})
		old, made = old[:len(old)-1], made[:len(made)-1]
	}

	slices.Reverse(tail)
	return slices.Concat(head, between(old, made), tail)
}

// between compares what neither begins nor ends alike.
func between(old, made []string) (lines []diffLine) {
	if len(old)*len(made) > maxDiffCells {
		for _, line := range old {
			lines = append(lines, diffLine{removed, line})
		}
		for _, line := range made {
			lines = append(lines, diffLine{added, line})
		}
		return lines
	}

	// common[i][j] is the length of the longest common subsequence of old[i:] and made[j:].
	common := make([][]int32, len(old)+1)
	for i := range common {
		common[i] = make([]int32, len(made)+1)
	}
	for i, line := range slices.Backward(old) {
		for j, other := range slices.Backward(made) {
			if line == other {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}

	i, j := 0, 0
	for i < len(old) || j < len(made) {
		switch {
		case i < len(old) && j < len(made) && old[i] == made[j]:
			lines = append(lines, diffLine{kept, old[i]})
			i, j = i+1, j+1
		case j == len(made) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, diffLine{removed, old[i]})
			i++
		default:
			lines = append(lines, diffLine{added, made[j]})
			j++
		}
	}
	return lines
}

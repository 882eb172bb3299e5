package history

import (
	"slices"

	"inbox/normalized"
)

// shortResult is what remains of a long tool result, in bytes of JSON. No text is shortened to less.
const shortResult = 1 << 10

// turnOutline is what the rules ask of a turn.
type turnOutline struct {
	role string
	text int // bytes that count towards Policy.MaxBytes
	long []longPart
}

// longPart is a part of more than shortResult bytes, a text or a tool result.
type longPart struct {
	part, size int
	result     bool
}

// cut is a part that is shortened from size to keep bytes.
type cut struct{ part, size, keep int }

func saved(cuts []cut) (bytes int) {
	for _, one := range cuts {
		bytes += one.size - one.keep
	}
	return bytes
}

// withCut returns the cuts with one of them changed or added.
func withCut(cuts []cut, added cut) []cut {
	at := slices.IndexFunc(cuts, func(one cut) bool { return one.part == added.part })
	if at < 0 {
		return append(slices.Clip(cuts), added)
	}
	cuts = slices.Clone(cuts)
	cuts[at].keep = min(cuts[at].keep, added.keep)
	return cuts
}

// outline measures turns.
func outline(turns excerpt[normalized.HistoricalMessage]) excerpt[turnOutline] {
	return excerpt[turnOutline]{head: outlines(turns.head), tail: outlines(turns.tail), total: turns.total}
}

// outlines has room for the two turns that are foreseen.
func outlines(turns []normalized.HistoricalMessage) []turnOutline {
	list := make([]turnOutline, len(turns), len(turns)+2)
	for i := range turns {
		list[i] = outlineOf(&turns[i])
	}
	return list
}

func outlineOf(turn *normalized.HistoricalMessage) turnOutline {
	t := turnOutline{role: turn.Role}
	for i := range turn.Parts {
		t.add(i, &turn.Parts[i])
	}
	return t
}

func (t *turnOutline) add(part int, p *normalized.Part) {
	t.text += len(p.Content) + len(p.Alt) + len(p.Title) + len(p.Description) + len(p.Args) + len(p.Result)
	if p.Error != nil {
		t.text += len(p.Error.Message)
	}
	if p.Policy != nil {
		t.text += len(p.Policy.Title) + len(p.Policy.Message)
	}

	switch {
	case len(p.Result) > shortResult:
		t.long = append(t.long, longPart{part: part, size: len(p.Result), result: true})
	case p.Kind == normalized.PartText && len(p.Content) > shortResult:
		t.long = append(t.long, longPart{part: part, size: len(p.Content)})
	}
}

// fit returns for each turn what is cut, so that all of them together have at most limit bytes: every long part gets the same length at
// most, so that short ones stay whole. Nothing is cut of turns that have less.
func fit(turns []*turnOutline, limit int) [][]cut {
	total := 0
	for _, turn := range turns {
		total += turn.text
	}
	if total <= limit {
		return nil
	}

	var sizes []int
	room := limit - total
	for _, turn := range turns {
		for _, long := range turn.long {
			sizes = append(sizes, long.size)
			room += long.size
		}
	}

	length := level(sizes, room)
	cuts := make([][]cut, len(turns))
	for i, turn := range turns {
		for _, long := range turn.long {
			if long.size > length {
				cuts[i] = append(cuts[i], cut{part: long.part, size: long.size, keep: length})
			}
		}
	}
	return cuts
}

// level returns the length at which all sizes together are at most room; no less than shortResult.
func level(sizes []int, room int) int {
	slices.Sort(sizes)
	for i, size := range sizes {
		share := room / (len(sizes) - i)
		if size > share {
			return max(share, shortResult)
		}
		room -= size
	}
	return max(room, shortResult)
}

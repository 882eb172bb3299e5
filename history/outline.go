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

// field is a text of a part that may be long.
type field uint8

const (
	fieldContent field = iota
	fieldAlt
	fieldTitle
	fieldDescription
	fieldFailure
	fieldArgs
	fieldResult
	fields
)

// ofTool reports whether the field holds the arguments or the result of a tool call.
func (f field) ofTool() bool { return f == fieldArgs || f == fieldResult }

func (f field) size(p *normalized.Part) int {
	switch f {
	case fieldAlt:
		return len(p.Alt)
	case fieldTitle:
		return len(p.Title)
	case fieldDescription:
		return len(p.Description)
	case fieldFailure:
		if p.Error == nil {
			return 0
		}
		return len(p.Error.Message)
	case fieldArgs:
		return len(p.Args)
	case fieldResult:
		return len(p.Result)
	default:
		return len(p.Content)
	}
}

// longPart is a field of a part that has more than shortResult bytes.
type longPart struct {
	part  int
	field field
	size  int
}

// cut is a field of a part that is shortened from size to keep bytes.
type cut struct {
	part       int
	field      field
	size, keep int
}

// to returns the cut that leaves at most so many bytes. Arguments stay an object, so that nothing of them is left.
func (l longPart) to(length int) cut {
	if l.field == fieldArgs {
		length = min(length, len(normalized.LeftOutJSON(l.size)))
	}
	return cut{part: l.part, field: l.field, size: l.size, keep: length}
}

func saved(cuts []cut) (bytes int) {
	for _, one := range cuts {
		bytes += one.size - one.keep
	}
	return bytes
}

// withCut returns the cuts with one of them changed or added.
func withCut(cuts []cut, added cut) []cut {
	at := slices.IndexFunc(cuts, func(one cut) bool { return one.part == added.part && one.field == added.field })
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
	for f := range fields {
		size := f.size(p)
		t.text += size
		if size > shortResult {
			t.long = append(t.long, longPart{part: part, field: f, size: size})
		}
	}
	if p.Policy != nil {
		t.text += len(p.Policy.Title) + len(p.Policy.Message)
	}
}

// fit returns the cuts of each turn that bring all turns together to at most limit bytes. Long fields are cut to one common length, so that
// short fields stay whole. Turns below the limit are not cut.
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
				cuts[i] = append(cuts[i], long.to(length))
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

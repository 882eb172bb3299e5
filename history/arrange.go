package history

import (
	"slices"

	"inbox/normalized"
)

// protected turns at the end are never shortened, or dropped for their size.
const protected = 2

// turnOutline is what the rules ask of a turn.
type turnOutline struct {
	role    string
	text    int // bytes that count towards Policy.MaxBytes
	results []longResult
}

// longResult is a tool result that can be shortened.
type longResult struct{ part, size int }

// arrangement says which turns make up the history, in groups that become one turn each, and which tool results become
// short. It is made of outlines alone, so that the next one can be foreseen.
type arrangement struct {
	groups [][]int
	short  map[int][]int // turn → parts
}

// shared counts the groups at the begin that are the same in both.
func (a arrangement) shared(b arrangement) (count int) {
	for i, group := range a.groups {
		if i >= len(b.groups) || !slices.Equal(group, b.groups[i]) {
			return i
		}
		for _, turn := range group {
			if !slices.Equal(a.short[turn], b.short[turn]) {
				return i
			}
		}
	}
	return len(a.groups)
}

func arrange(turns []turnOutline, policy Policy, opened bool) arrangement {
	w := selectTurns(turns, policy)
	kept := w.kept()
	if policy.Alternation != AlternationOff && !opened {
		kept = dropUnasked(kept, turns, w)
	}
	return arrangement{groups: groups(kept, turns, policy.Alternation), short: w.short}
}

// window is the choice of turns [0,head) and [start,n).
type window struct {
	head, start, n int
	short          map[int][]int
}

// selectTurns applies rules 2 and 3 of section 4.
func selectTurns(turns []turnOutline, policy Policy) window {
	w := byCount(len(turns), policy)
	if policy.MaxBytes <= 0 {
		return w
	}
	over := w.bytes(turns) - policy.MaxBytes
	for over > 0 && w.start+policy.Slide <= w.n-protected { // whole blocks
		over -= w.drop(turns, policy.Slide)
	}
	if over > 0 {
		over -= w.shorten(turns, over)
	}
	if rest := w.n - protected - w.start; over > 0 && rest > 0 { // the last block is not a whole one
		w.drop(turns, rest)
		w.short = nil
	}
	return w
}

// byCount moves the start of the window only every Slide turns, so that the prefix is the same in between.
func byCount(n int, policy Policy) window {
	head, slide := min(policy.KeepHead, n), policy.Slide
	if n <= head+policy.Window {
		return window{head: head, start: head, n: n}
	}
	start := head + slide*((n-head-policy.Window+slide-1)/slide)
	return window{head: head, start: min(start, n), n: n}
}

func (w *window) kept() []int {
	kept := make([]int, 0, w.head+w.n-w.start)
	for i := range w.n {
		if i < w.head || i >= w.start {
			kept = append(kept, i)
		}
	}
	return kept
}

func (w *window) bytes(turns []turnOutline) (total int) {
	for _, i := range w.kept() {
		total += turns[i].text
	}
	return total
}

// drop moves the start of the window and gives the bytes that this saves.
func (w *window) drop(turns []turnOutline, count int) (saved int) {
	for _, t := range turns[w.start : w.start+count] {
		saved += t.text
	}
	w.start += count
	return saved
}

// shorten marks long tool results, the oldest first, until enough bytes are saved.
func (w *window) shorten(turns []turnOutline, enough int) (saved int) {
	w.short = map[int][]int{}
	for i := w.start; i < w.n-protected; i++ {
		for _, long := range turns[i].results {
			if saved >= enough {
				return saved
			}
			w.short[i] = append(w.short[i], long.part)
			saved += long.size - shortResult
		}
	}
	return saved
}

// dropUnasked removes answers whose question is not in the history: at its begin, and where turns were left out.
func dropUnasked(kept []int, turns []turnOutline, w window) []int {
	asked := make([]int, 0, len(kept))
	leading := true
	for _, i := range kept {
		leading = leading || i == w.start && w.start > w.head
		leading = leading && turns[i].role == normalized.RoleAssistant
		if !leading {
			asked = append(asked, i)
		}
	}
	return asked
}

// groups makes one group of neighbours of equal role, or keeps only the last of them.
func groups(kept []int, turns []turnOutline, how Alternation) (list [][]int) {
	for _, i := range kept {
		last := len(list) - 1
		neighbours := last >= 0 && how != AlternationOff && turns[list[last][0]].role == turns[i].role
		switch {
		case !neighbours:
			list = append(list, []int{i})
		case how == AlternationDrop:
			list[last] = []int{i}
		default:
			list[last] = append(list[last], i)
		}
	}
	return list
}

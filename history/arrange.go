package history

import (
	"slices"

	"inbox/normalized"
)

// arrangement says which turns make up the history, in groups that become one turn each, and which of their parts are
// shortened. It is made of outlines alone, so that the next one can be foreseen.
type arrangement struct {
	groups [][]int
	short  map[int][]cut // by turn
}

// shared counts the groups at the start that are the same in both.
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

func arrange(turns excerpt[turnOutline], policy Policy, opened bool) arrangement {
	w := selectTurns(turns, policy)
	kept := w.kept()
	if policy.Alternation != AlternationOff {
		kept = dropUnasked(kept, turns, w, opened)
	}
	return arrangement{groups: groups(kept, turns, policy.Alternation), short: w.short}
}

// dropUnasked removes answers whose question is not in the history: where turns were left out, and at its begin unless the
// agent opened the thread.
func dropUnasked(kept []int, turns excerpt[turnOutline], w window, opened bool) []int {
	asked := make([]int, 0, len(kept))
	leading := !opened
	for _, i := range kept {
		leading = leading || i == w.start && w.start > w.head
		leading = leading && turns.at(i).role == normalized.RoleAssistant
		if !leading {
			asked = append(asked, i)
		}
	}
	return asked
}

// groups makes one group of neighbours of equal role, or keeps only the last of them.
func groups(kept []int, turns excerpt[turnOutline], how Alternation) (list [][]int) {
	for _, i := range kept {
		last := len(list) - 1
		neighbours := last >= 0 && how != AlternationOff && turns.at(list[last][0]).role == turns.at(i).role
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

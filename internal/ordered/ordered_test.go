package ordered

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type pair struct{ key, place int }

func byKey(a, b pair) int { return cmp.Compare(a.key, b.key) }

// TestSameOrder compares with package slices.
func TestSameOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "keys")
		list := make([]pair, len(keys))
		for i, key := range keys {
			list[i] = pair{key, i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, byKey)

		stable := slices.Clone(list)
		Stable(stable, byKey)
		if !slices.Equal(stable, want) {
			t.Fatalf("stable: got %v, want %v", stable, want)
		}

		Sort(list, byKey)
		if !slices.IsSortedFunc(list, byKey) {
			t.Fatalf("%v is not sorted", list)
		}
		slices.SortFunc(list, func(a, b pair) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.place, b.place)) })
		if !slices.Equal(list, want) {
			t.Fatalf("got the elements %v, want %v", list, want)
		}
	})
}

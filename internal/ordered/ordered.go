// Package ordered sorts as package slices does, with one machine code for elements of all types: that of slices is compiled for each type, with
// fifteen kilobytes in the program each time (decision 0125). It is for short lists; what sorts while messages wait uses slices.
package ordered

import "sort"

// Sort sorts a list as slices.SortFunc does; equal elements may change places.
func Sort[E any](list []E, compare func(a, b E) int) {
	sort.Slice(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// Stable sorts a list as slices.SortStableFunc does; equal elements keep their order.
func Stable[E any](list []E, compare func(a, b E) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

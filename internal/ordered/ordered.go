// Package ordered sorts as package slices does, with one machine code for elements of all types: that of slices is compiled for each type, with
// fifteen kilobytes in the program each time (decision 0125). It is for short lists; what sorts while messages wait uses slices.
package ordered

import "sort"

// Sort sorts a list as slices.SortFunc does; equal elements may change places.
func Sort[E any](list []E, compare func(a, b E) int) { sort.Sort(elements[E]{list, compare}) }

// Stable sorts a list as slices.SortStableFunc does; equal elements keep their order.
func Stable[E any](list []E, compare func(a, b E) int) { sort.Stable(elements[E]{list, compare}) }

// elements is a list as package sort takes it.
type elements[E any] struct {
	list    []E
	compare func(a, b E) int
}

// Len implements sort.Interface.
func (e elements[E]) Len() int { return len(e.list) }

// Less implements sort.Interface.
func (e elements[E]) Less(i, j int) bool { return e.compare(e.list[i], e.list[j]) < 0 }

// Swap implements sort.Interface.
func (e elements[E]) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }

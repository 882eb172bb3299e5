// Package bounded keeps maps in memory within a bound, for counters and answers of which any may be forgotten. It is no
// cache: it keeps no order of use.
package bounded

// MakeRoom removes the entries that are over, and when that is none, an arbitrary tenth.
func MakeRoom[K comparable, V any](entries map[K]V, over func(V) bool) {
	before := len(entries)
	for key, value := range entries {
		if over(value) {
			delete(entries, key)
		}
	}
	if len(entries) < before {
		return
	}

	left := before/10 + 1
	for key := range entries {
		if left--; left < 0 {
			return
		}
		delete(entries, key)
	}
}

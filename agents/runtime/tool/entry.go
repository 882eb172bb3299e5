package tool

import (
	"maps"
	"slices"

	"inbox/agents/runtime/value"
)

// Entry is one tool as somebody declared it, before anything is checked.
type Entry struct {
	Name  string // the key it stood under, "" in a list
	Value any
}

// Entries reads a declaration set that is a list or an object by names. The members of a map have no order, so they are
// taken in that of their names.
func Entries(given any) []Entry {
	switch set := value.Plain(given).(type) {
	case []any:
		entries := make([]Entry, len(set))
		for index, item := range set {
			entries[index] = Entry{Value: item}
		}
		return entries
	case map[string]any:
		entries := make([]Entry, 0, len(set))
		for _, name := range slices.Sorted(maps.Keys(set)) {
			entries = append(entries, Entry{Name: name, Value: set[name]})
		}
		return entries
	default:
		return nil
	}
}

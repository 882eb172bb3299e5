package value

import (
	"maps"
	"slices"
)

// Members returns the members of a value of any Go type that is an object as JSON; everything else has none.
func Members(given any) map[string]any { return Assoc(Plain(given)) }

// ShallowCopy returns a new object with the members of an object; everything else has none.
func ShallowCopy(given any) map[string]any {
	object, _ := Object(given)
	if object == nil {
		return map[string]any{}
	}
	return maps.Clone(object)
}

// PlainContainer reports whether a value of any Go type is an object or a list as JSON.
func PlainContainer(given any) bool { return Container(Plain(given)) }

// Filled returns the object, or an empty one for nil, so that it is written as {} and not as null.
func Filled(object map[string]any) map[string]any {
	if object == nil {
		return map[string]any{}
	}
	return object
}

// FilledList returns the list, or an empty one for nil, so that it is written as [] and not as null.
func FilledList(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// OrNull returns the text, or null for an empty one.
func OrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Items returns texts as a list.
func Items(texts []string) []any {
	list := make([]any, len(texts))
	for i, text := range texts {
		list[i] = text
	}
	return list
}

// Word returns a scalar as trimmed text, "" for everything else.
func Word(given any) string { return Trim(Scalar(given)) }

// FirstWord returns the first value that has a word.
func FirstWord(values ...any) string {
	for _, one := range values {
		if found := Word(one); found != "" {
			return found
		}
	}
	return ""
}

// Words returns the distinct words of a list; a scalar counts as a list of one.
func Words(given any) []string {
	items := []any{given}
	if Container(given) {
		items = Elements(given)
	}

	found := []string{}
	for _, item := range items {
		if one := Word(item); one != "" && !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}

// Names reads a list of names: a single text is a list of one, members that are no text or blank are left out,
// everything is trimmed and each name stands once.
func Names(given any) []string {
	items := []any{given}
	if PlainContainer(given) {
		items = Elements(given)
	}

	var names Set
	for _, item := range items {
		if name, is := NonBlank(item); is {
			names.Add(name)
		}
	}
	return names.Ordered
}

// Set keeps texts in order, each once, in linear time: lists of names come from strangers. The zero value is empty.
type Set struct {
	Ordered []string
	seen    map[string]bool
}

// Add appends a text unless the set has it.
func (s *Set) Add(text string) {
	if s.seen[text] {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[text] = true
	s.Ordered = append(s.Ordered, text)
}

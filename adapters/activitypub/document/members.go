package document

import (
	"slices"
	"strings"
)

// Members are those of a JSON object in their order.
type Members []Member

// Member is a member of a JSON object as it stands in the text.
type Member struct {
	Name  string
	text  string // name and value
	Value string
}

// SplitMembers cuts an object into its members without touching their bytes: a number or an escape that is written anew
// would not have the hash that was signed.
func SplitMembers(document []byte) (Members, error) {
	s := scanner{text: withoutMark(string(document))}
	if s.blanks(); s.at >= len(s.text) || s.text[s.at] != '{' {
		return nil, s.fail("want a JSON object")
	}

	s.at++
	var members Members
	for first := true; ; first = false {
		if done, err := s.next('}', first); err != nil || done {
			return members, err
		}

		start := s.at
		name, err := s.name()
		if err != nil {
			return nil, err
		}

		from := s.at
		if _, err := s.value(2, false); err != nil {
			return nil, err
		}

		members = append(members, Member{name, s.text[start:s.at], s.text[from:s.at]})
	}
}

// SplitItems cuts a list into its items in the same way.
func SplitItems(list string) ([]string, error) {
	s := scanner{text: list, at: 1}
	var items []string
	for first := true; ; first = false {
		if done, err := s.next(']', first); err != nil || done {
			return items, err
		}
		start := s.at
		if _, err := s.value(2, false); err != nil {
			return nil, err
		}
		items = append(items, s.text[start:s.at])
	}
}

// Get finds a member by its name.
func (m Members) Get(name string) (Member, bool) {
	for _, one := range m {
		if one.Name == name {
			return one, true
		}
	}
	return Member{}, false
}

// Without writes an object of all members except the named ones.
func (m Members) Without(names ...string) []byte {
	kept := make([]string, 0, len(m))
	for _, one := range m {
		if !slices.Contains(names, one.Name) {
			kept = append(kept, one.text)
		}
	}
	return []byte("{" + strings.Join(kept, ",") + "}")
}

package uniquejson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Names say which names of members are the same one to some reader.
type Names struct {
	// Folded is the depth of objects up to which names are the same that differ in case and underscores only: encoding/json takes any case,
	// and ProtoJSON takes context_id for contextId. 1 = those of the document's own object. Deeper ones are compared letter by letter.
	Folded int
	// Free are members whose values are data of the sender: everything in them is compared letter by letter.
	Free []string
}

// Duplicate returns the name of a member that one object of the document has twice (RFC 8259, section 4). It does not check the syntax: of
// what is not JSON it finds none, and the decoder says so. The caller bounds size and depth before.
func Duplicate(document []byte, names Names) (name string, found bool) {
	name, found, _ = Examine(document, names, Limits{})
	return name, found
}

// Limits bound a document.
type Limits struct {
	Depth  int // containers inside each other; 0 = 1000, because the scan recurs
	Values int // all together; 0 = any number
}

// What a document is that is over a limit.
const (
	TooDeep = "nests too deeply"
	TooMany = "has too many values"
)

// Examine is Duplicate for a document that is not bounded yet: it also returns which limit the document is over, TooDeep or TooMany. What is
// behind that place was not looked at, so the caller refuses the document.
func Examine(document []byte, names Names, limits Limits) (name string, found bool, over string) {
	if limits.Depth == 0 {
		limits.Depth = maxNested
	}
	scan := &scanner{in: document, names: names, limits: limits}
	scan.value(0, false)
	return string(scan.duplicate), scan.duplicate != nil, scan.over
}

type scanner struct {
	in        []byte
	at        int
	names     Names
	limits    Limits
	values    int
	duplicate []byte
	over      string // which limit
}

// maxNested bounds the recursion where a caller did not.
const maxNested = 1000

// value passes one value and reports whether to go on.
func (s *scanner) value(depth int, free bool) bool {
	s.space()
	if s.at >= len(s.in) {
		return false
	}
	if s.values++; s.limits.Values > 0 && s.values > s.limits.Values {
		s.over = TooMany
		return false
	}
	if depth > s.limits.Depth {
		s.over = TooDeep
		return false
	}

	switch s.in[s.at] {
	case '{':
		s.at++
		return s.object(depth, free)
	case '[':
		s.at++
		return s.list(depth, free)
	case '"':
		_, whole := s.text()
		return whole
	}

	for s.at < len(s.in) && strings.IndexByte(",]} \t\r\n", s.in[s.at]) < 0 {
		s.at++
	}
	return true
}

func (s *scanner) list(depth int, free bool) bool {
	if s.takes(']') {
		return true
	}
	for s.value(depth+1, free) {
		if !s.takes(',') {
			return s.takes(']')
		}
	}
	return false
}

// fewMembers is the number of members up to which names are compared with each other; the objects of a request have fewer.
const fewMembers = 24

func (s *scanner) object(depth int, free bool) bool {
	if s.takes('}') {
		return true
	}

	folded := depth < s.names.Folded && !free
	var room [fewMembers][]byte
	seen, many := room[:0], map[string]bool(nil)

	for {
		s.space()
		name, whole := s.text()
		if !whole {
			return false
		}

		own := free || folded && slices.Contains(s.names.Free, string(name))
		name = plain(name)
		if s.repeated(name, folded, seen, many) {
			s.duplicate = name
			return false
		}

		switch {
		case many != nil:
			many[key(name, folded)] = true
		case len(seen) < fewMembers:
			seen = append(seen, name)
		default:
			many = map[string]bool{key(name, folded): true}
		}

		if !s.takes(':') || !s.value(depth+1, own) {
			return false
		}
		if !s.takes(',') {
			return s.takes('}')
		}
	}
}

func (s *scanner) repeated(name []byte, folded bool, seen [][]byte, many map[string]bool) bool {
	for _, other := range seen {
		if folded && equalFolded(name, other) || !folded && bytes.Equal(name, other) {
			return true
		}
	}
	return many != nil && many[key(name, folded)]
}

// text passes a text and returns what is between its quotes.
func (s *scanner) text() (inner []byte, whole bool) {
	if s.at >= len(s.in) || s.in[s.at] != '"' {
		return nil, false
	}

	begin := s.at + 1
	for at := begin; ; {
		next := bytes.IndexByte(s.in[at:], '"')
		if next < 0 {
			return nil, false
		}
		end := at + next
		if !escaped(s.in[begin:end]) {
			s.at = end + 1
			return s.in[begin:end], true
		}
		at = end + 1
	}
}

// escaped reports whether what comes behind the text is escaped: an odd number of backslashes is at its end.
func escaped(text []byte) bool {
	count := 0
	for count < len(text) && text[len(text)-1-count] == '\\' {
		count++
	}
	return count%2 == 1
}

func (s *scanner) takes(char byte) bool {
	s.space()
	if s.at < len(s.in) && s.in[s.at] == char {
		s.at++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.at < len(s.in) && (s.in[s.at] == ' ' || s.in[s.at] == '\t' || s.in[s.at] == '\r' || s.in[s.at] == '\n') {
		s.at++
	}
}

// plain resolves the escapes of a name.
func plain(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	var text string
	if json.Unmarshal(slices.Concat([]byte{'"'}, name, []byte{'"'}), &text) != nil {
		return name
	}
	return []byte(text)
}

// key is the name as it is looked up among many.
func key(name []byte, folded bool) string {
	if !folded {
		return string(name)
	}
	return fold(string(bytes.ReplaceAll(name, []byte{'_'}, nil)))
}

// equalFolded reports whether two names differ in case and underscores only.
func equalFolded(one, other []byte) bool {
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		for i < len(one) && one[i] == '_' {
			i++
		}
		for j < len(other) && other[j] == '_' {
			j++
		}
		if i == len(one) || j == len(other) {
			return i == len(one) && j == len(other)
		}
		if one[i] >= 0x80 || other[j] >= 0x80 {
			return key(one, true) == key(other, true)
		}
		if lower(one[i]) != lower(other[j]) {
			return false
		}
	}
}

func lower(char byte) byte {
	if 'A' <= char && char <= 'Z' {
		return char + 'a' - 'A'
	}
	return char
}

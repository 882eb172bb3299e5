// Package document reads what ActivityPub servers send and show: strict JSON, bounded in size, depth and number of values,
// and from it actors, addresses, mentions and WebFinger resources as typed Go. It makes no requests, knows no store, and
// does not judge where a document came from.
package document

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"inbox/internal/clip"
	"inbox/internal/fault"
)

// Limits of a document.
const (
	MaxBytes = 1 << 20
	maxDepth = 64
	MaxNodes = 10_000
)

// Object is a JSON object with its exact names. Values are object, []any, string, json.Number, bool and nil.
type Object = map[string]any

// Parse reads one strict JSON document.
//
// It is code of our own because encoding/json keeps the last of two equal names, folds case when it fills structs, nests
// 10,000 deep and repairs broken UTF-8: each lets two readers of the same bytes see different activities
// (TestParseObjectRefuses). encoding/json/jsontext, which needs an experiment of Go 1.26, would refuse duplicates alone.
// internal/boundedjson counts a stream for a decoder that follows and builds nothing.
//
// What is wrong with a text alone costs its sender nothing: half of an escaped surrogate pair, as programs write that cut a name between two
// UTF-16 units, becomes U+FFFD, and a byte order mark at the start is passed over (RFC 8259, sections 8.1 and 8.2). Digests and proofs
// are checked over the bytes as they came.
//
// An IRI whose host is in Unicode is read with the host in punycode, so that both spellings name one server; texts for people stay.
//
// JSON-LD keywords are refused, because fixed names are read and nothing is ever expanded (except below terms of foreign
// vocabularies, see typing); @context is checked for syntax only, and a linked-data signature is dropped before anything can
// look at it.
func Parse(body []byte) (Object, error) {
	if !utf8.Valid(body) {
		return nil, malformed(0, "not valid UTF-8")
	}
	s := scanner{text: withoutMark(string(body))}
	s.blanks()
	if s.at >= len(s.text) || s.text[s.at] != '{' {
		return nil, s.fail("want a JSON object")
	}

	value, err := s.value(1, true)
	if err != nil {
		return nil, err
	}
	if s.blanks(); s.at != len(s.text) {
		return nil, s.fail("text after the end of the document")
	}

	document := value.(Object)
	delete(document, "signature")
	return document, nil
}

// withoutMark cuts a byte order mark off.
func withoutMark(text string) string { return strings.TrimPrefix(text, "\ufeff") }

type scanner struct {
	text    string
	at      int
	nodes   int
	prose   int // members around us that are texts for people
	foreign int // members around us whose names are prefixed, as vcard:hasAddress
}

// typing are the keywords that say what a value is. Friendica types the postal address of every actor with them;
// nothing reads below a prefixed name, so they can turn nothing into something else there.
var typing = []string{"@type", "@id", "@value", "@language"}

// prose are the members that people read.
var prose = []string{"content", "contentMap", "name", "nameMap", "preferredUsername", "source", "summary", "summaryMap", "value"}

func malformed(at int, reason string) error {
	return fault.InField("body", reason+" at byte "+strconv.Itoa(at))
}

func (s *scanner) fail(reason string) error { return malformed(s.at, reason) }

func (s *scanner) blanks() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// value reads one value. Without keep it checks the syntax only and returns nil.
func (s *scanner) value(depth int, keep bool) (any, error) {
	if s.nodes++; s.nodes > MaxNodes {
		return nil, s.fail("too many values")
	}
	if s.at >= len(s.text) {
		return nil, s.fail("unexpected end")
	}

	switch c := s.text[s.at]; {
	case c == '"':
		s.at++
		text, err := s.str()
		if s.prose > 0 || !strings.HasPrefix(text, "http") {
			return text, err
		}
		return Canonical(text), err
	case c == '{' || c == '[':
		if depth > maxDepth {
			return nil, s.fail("nested too deeply")
		}
		s.at++
		if c == '{' {
			return s.members(depth, keep)
		}
		return s.items(depth, keep)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}

	return s.literal()
}

func (s *scanner) literal() (any, error) {
	for _, known := range [...]struct {
		text  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if strings.HasPrefix(s.text[s.at:], known.text) {
			s.at += len(known.text)
			return known.value, nil
		}
	}

	return nil, s.fail("unexpected character")
}

func (s *scanner) members(depth int, keep bool) (any, error) {
	var into Object
	if keep {
		into = make(Object, 8)
	}

	for first := true; ; first = false {
		done, err := s.next('}', first)
		if err != nil {
			return nil, err
		}
		if done && keep {
			return into, nil
		}
		if done {
			return nil, nil
		}
		if err := s.member(into, depth, keep); err != nil {
			return nil, err
		}
	}
}

func (s *scanner) member(into Object, depth int, keep bool) error {
	name, err := s.name()
	if err != nil {
		return err
	}

	context := name == "@context"
	if keep && len(name) > 0 && name[0] == '@' && !context && (s.foreign == 0 || !slices.Contains(typing, name)) {
		return s.fail("JSON-LD keyword " + strconv.Quote(clip.Bytes(name, 40)))
	}

	prefixed := strings.Contains(name, ":")
	if prefixed {
		s.foreign++
	}

	if slices.Contains(prose, name) {
		s.prose++
		defer func() { s.prose-- }()
	}

	if keep && disguised(name, depth) {
		return s.fail("name " + strconv.Quote(clip.Bytes(name, 40)) + " in another case")
	}

	value, err := s.value(depth+1, keep && !context)
	if err != nil {
		return err
	}

	if prefixed {
		s.foreign--
	}

	if !keep {
		return nil
	}
	if _, twice := into[name]; twice {
		return s.fail("duplicate name " + strconv.Quote(clip.Bytes(name, 40)))
	}

	into[name] = value
	return nil
}

// guardedNames decide who did what. Another reader of the same bytes that folds case, such as encoding/json, would take
// Actor for actor.
var guardedNames = []string{"actor", "object", "type", "attributedTo", "publicKey", "owner", "controller", "proof", "signature"}

// disguised knows a guarded name in other letters. id counts at the top alone: below, ID can be a language (contentMap).
func disguised(name string, depth int) bool {
	plain := true
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' {
			plain = false
			break
		}
	}
	if plain {
		return false
	}

	for _, guarded := range guardedNames {
		if name != guarded && strings.EqualFold(name, guarded) {
			return true
		}
	}
	return depth == 1 && name != "id" && strings.EqualFold(name, "id")
}

func (s *scanner) name() (string, error) {
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		return "", s.fail("want a name in quotes")
	}
	s.at++
	name, err := s.str()
	if err != nil {
		return "", err
	}
	if s.blanks(); s.at >= len(s.text) || s.text[s.at] != ':' {
		return "", s.fail("want a colon")
	}

	s.at++
	s.blanks()
	return name, nil
}

func (s *scanner) items(depth int, keep bool) (any, error) {
	var list []any
	if keep {
		list = make([]any, 0, 4)
	}

	for first := true; ; first = false {
		done, err := s.next(']', first)
		if err != nil {
			return nil, err
		}
		if done && keep {
			return list, nil
		}
		if done {
			return nil, nil
		}

		value, err := s.value(depth+1, keep)
		if err != nil {
			return nil, err
		}

		if keep {
			list = append(list, value)
		}
	}
}

// next moves to the next element of a list or object: over the comma, or over the closing mark.
func (s *scanner) next(closing byte, first bool) (done bool, err error) {
	s.blanks()
	switch {
	case s.at >= len(s.text):
		return false, s.fail("unexpected end")
	case s.text[s.at] == closing:
		s.at++
		return true, nil
	case first:
		return false, nil
	case s.text[s.at] != ',':
		return false, s.fail("want a comma")
	}

	s.at++
	s.blanks()
	if s.at < len(s.text) && s.text[s.at] == closing {
		return false, s.fail("comma before the end")
	}
	return false, nil
}

func (s *scanner) number() (any, error) {
	start := s.at
	if s.text[s.at] == '-' {
		s.at++
	}

	whole := s.digits()
	if whole == 0 || whole > 1 && s.text[s.at-whole] == '0' {
		return nil, s.fail("not a number")
	}

	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if s.digits() == 0 {
			return nil, s.fail("not a number")
		}
	}

	if s.at < len(s.text) && s.text[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
			s.at++
		}

		if s.digits() == 0 {
			return nil, s.fail("not a number")
		}
	}

	return json.Number(s.text[start:s.at]), nil
}

func (s *scanner) digits() int {
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at - start
}

// str reads a string after its opening quote. Without escapes it shares the document's memory.
func (s *scanner) str() (string, error) {
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			text := s.text[s.at:i]
			s.at = i + 1
			return text, nil
		case c == '\\':
			return s.escaped(i)
		case c < ' ':
			return "", s.fail("control character in a string")
		}
	}

	return "", s.fail("string without end")
}

// escaped reads the rest of a string whose first escape is at from, a run of plain text at a time.
func (s *scanner) escaped(from int) (string, error) {
	var out strings.Builder
	out.Grow(2 * (from - s.at + 16))
	for start := s.at; ; start = s.at {
		run := strings.IndexFunc(s.text[start:], func(r rune) bool { return r == '"' || r == '\\' || r < ' ' })
		if run < 0 {
			return "", s.fail("string without end")
		}

		out.WriteString(s.text[start : start+run])
		s.at = start + run
		switch s.text[s.at] {
		case '"':
			s.at++
			return out.String(), nil
		case '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			out.WriteRune(r)
		default:
			return "", s.fail("control character in a string")
		}
	}
}

var simpleEscapes = [256]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func (s *scanner) escape() (rune, error) {
	if s.at+1 >= len(s.text) {
		return 0, s.fail("string without end")
	}
	kind := s.text[s.at+1]
	if kind != 'u' {
		if simpleEscapes[kind] == 0 {
			return 0, s.fail("unknown escape")
		}
		s.at += 2
		return simpleEscapes[kind], nil
	}

	r, err := s.unicode()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if !strings.HasPrefix(s.text[s.at:], `\u`) {
		return utf8.RuneError, nil
	}

	second := s.at
	low, err := s.unicode()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		s.at = second // it stands for itself
	}
	return r, nil
}

// unicode reads \uXXXX.
func (s *scanner) unicode() (rune, error) {
	if s.at+6 > len(s.text) {
		return 0, s.fail("string without end")
	}
	var r rune
	for _, c := range []byte(s.text[s.at+2 : s.at+6]) {
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if digit < 0 || c < '0' {
			return 0, s.fail("want four hexadecimal digits")
		}
		r = r<<4 | rune(digit)
	}

	s.at += 6
	return r, nil
}

package activitypub

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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
	if s.at+1 >= len(s.text) || s.text[s.at] != '\\' || s.text[s.at+1] != 'u' {
		return 0, s.fail("half of a surrogate pair")
	}
	low, err := s.unicode()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, s.fail("half of a surrogate pair")
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

package normalized

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// peek returns the next byte that is not white space without taking it; 0 at the end.
func (r *reader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) take(c byte, rule string) bool {
	if r.err != nil {
		return false
	}
	if r.peek() != c {
		r.fail(rule)
		return false
	}
	r.pos++
	return true
}

func (r *reader) literal(word string) bool {
	if !bytes.HasPrefix(r.data[r.pos:], []byte(word)) {
		r.syntax()
		return false
	}
	r.pos += len(word)
	return true
}

// skip steps over one value and checks its syntax; in strict mode also that no key is a duplicate.
func (r *reader) skip() {
	if r.err != nil {
		return
	}

	r.nullable = false
	switch r.peek() {
	case '{':
		r.skipObject()
	case '[':
		for ok := r.beginArray(); ok && r.element(); {
			r.skip()
		}
	case '"':
		r.pos++
		r.skipQuoted()
	case 't':
		r.literal("true")
	case 'f':
		r.literal("false")
	case 'n':
		r.literal("null")
	default:
		r.number()
	}
}

func (r *reader) skipObject() {
	if !r.beginObject() {
		return
	}

	var seen keySet
	for r.field() {
		if r.strict && !seen.add(r.key) {
			r.fail("comes twice")
			return
		}
		r.skip()
	}
}

const fewKeys = 16

// keySet finds duplicate keys of one object. Few keys are compared one by one, many through a map.
type keySet struct {
	few   [fewKeys][]byte
	count int
	many  map[string]struct{}
}

func (k *keySet) add(key []byte) bool {
	if k.count < fewKeys {
		for _, other := range k.few[:k.count] {
			if bytes.Equal(other, key) {
				return false
			}
		}
		k.few[k.count] = key
		k.count++
		return true
	}

	if k.many == nil {
		k.many = make(map[string]struct{}, 4*fewKeys)
		for _, other := range k.few {
			k.many[string(other)] = struct{}{}
		}
	}

	before := len(k.many)
	k.many[string(key)] = struct{}{}
	return len(k.many) > before
}

// number steps over a number (RFC 8259, section 6).
func (r *reader) number() bool {
	if r.err != nil {
		return false
	}

	start := r.pos
	r.oneOf("-")
	valid := r.oneOf("0") || r.digits()
	if valid && r.oneOf(".") {
		valid = r.digits()
	}
	if valid && r.oneOf("eE") {
		r.oneOf("+-")
		valid = r.digits()
	}
	if !valid {
		r.pos = start
		r.syntax()
	}

	return valid
}

func (r *reader) oneOf(set string) bool {
	if r.pos < len(r.data) && strings.IndexByte(set, r.data[r.pos]) >= 0 {
		r.pos++
		return true
	}
	return false
}

func (r *reader) digits() bool {
	start := r.pos
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		r.pos++
	}
	return r.pos > start
}

// quoted reads the rest of a string; without escapes the result lies in the document itself.
func (r *reader) quoted() []byte {
	start := r.pos
	end, escaped := r.skipQuoted()
	if r.err != nil {
		return nil
	}
	if !escaped {
		return r.data[start:end]
	}
	return unescape(r.data[start:end])
}

// skipQuoted steps over the rest of a string and checks its escapes.
func (r *reader) skipQuoted() (end int, escaped bool) {
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			end = r.pos
			r.pos++
			r.checkText(start, end, escaped)
			return end, escaped
		case c == '\\':
			escaped = true
			if !r.escape() {
				r.syntax()
				return 0, false
			}
		case c < ' ':
			r.syntax()
			return 0, false
		default:
			r.pos++
		}
	}

	r.syntax()
	return 0, false
}

// checkText refuses, in strict mode, what could not be written again as it came: bytes that are not UTF-8 and escaped
// halves of surrogate pairs, which programs that cut a text between the two write.
func (r *reader) checkText(start, end int, escaped bool) {
	if !r.strict {
		return
	}
	text := r.data[start:end]
	if !utf8.Valid(text) || escaped && hasLoneSurrogate(text) && !r.inWords() {
		r.fail("must be valid UTF-8")
	}
}

// inWords reports whether the value is of a part or a piece of text, or anything of an answer but its ids and addresses. Half of a surrogate
// pair becomes U+FFFD there, and does not fail all of an answer; in ids and addresses it is refused.
func (r *reader) inWords() bool {
	words := r.answer
	for _, s := range r.path {
		switch string(s.key) {
		case "parts", "part", "text":
			return true
		case "in_reply_to", "thread_id", "to", "cc":
			words = false
		}
	}
	return words
}

// escape steps over one escape sequence.
func (r *reader) escape() bool {
	rest := r.data[r.pos:]
	if len(rest) < 2 {
		return false
	}

	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		r.pos += 2
		return true
	case 'u':
		r.pos += 6
		return hex4(rest[2:]) >= 0
	}
	return false
}

// hex4 reads four hexadecimal digits; -1 when they are not there.
func hex4(text []byte) rune {
	if len(text) < 4 {
		return -1
	}

	var value rune
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		value = value<<4 | rune(c)
	}

	return value
}

var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape decodes a string whose escapes were checked; a lone surrogate becomes U+FFFD.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		next := bytes.IndexByte(text, '\\')
		if next < 0 {
			return append(out, text...)
		}

		out = append(out, text[:next]...)
		text = text[next:]
		if plain := simpleEscapes[text[1]]; plain != 0 {
			out, text = append(out, plain), text[2:]
			continue
		}

		var r rune
		r, text = unicodeEscape(text)
		out = utf8.AppendRune(out, r)
	}

	return out
}

// unicodeEscape decodes \uXXXX, with its second half where it is one of a pair.
func unicodeEscape(text []byte) (rune, []byte) {
	r := hex4(text[2:])
	text = text[6:]
	if !utf16.IsSurrogate(r) {
		return r, text
	}

	if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(text[2:])); pair != utf8.RuneError {
			return pair, text[6:]
		}
	}
	return utf8.RuneError, text
}

func hasLoneSurrogate(text []byte) bool {
	_, found := loneSurrogate(text)
	return found
}

// loneSurrogate returns the place of the first escaped half of a surrogate pair that is without the other one.
func loneSurrogate(text []byte) (at int, found bool) {
	for {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return 0, false
		}

		at += next
		if text[at+1] != 'u' {
			at += 2
			continue
		}

		written := hex4(text[at+2:])
		r, rest := unicodeEscape(text[at:])
		if r == utf8.RuneError && written != utf8.RuneError {
			return at, true
		}
		at = len(text) - len(rest)
	}
}

// mended returns a document whose escapes were checked with U+FFFD for each half of a surrogate pair: what is kept as it came, such as the
// result of a tool, is passed on to readers who would refuse the whole.
func mended(data []byte) []byte {
	at, found := loneSurrogate(data)
	if !found {
		return data
	}

	data = bytes.Clone(data)
	for rest := data; found; at, found = loneSurrogate(rest) {
		copy(rest[at:], `\ufffd`)
		rest = rest[at:]
	}
	return data
}

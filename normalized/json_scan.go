package normalized

import (
	"bytes"
	"strings"
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

// skip steps over one value and checks its syntax; in strict mode also that no key comes twice.
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

// keySet finds a key that comes twice in one object. Few keys are compared one by one, many through a map.
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

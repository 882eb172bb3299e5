package normalized

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"inbox/identity"
)

// writer appends one JSON document to a buffer, without reflection. Commas come by themselves: a value that follows
// another value gets one.
type writer struct {
	buf   []byte
	start int // what was in the buffer before is not ours
	err   error
}

func newWriter(dst []byte) *writer { return &writer{buf: dst, start: len(dst)} }

func (w *writer) comma() {
	if len(w.buf) == w.start {
		return
	}
	switch w.buf[len(w.buf)-1] {
	case '{', '[', ':':
	default:
		w.buf = append(w.buf, ',')
	}
}

func (w *writer) open(bracket byte) {
	w.comma()
	w.buf = append(w.buf, bracket)
}

func (w *writer) close(bracket byte) { w.buf = append(w.buf, bracket) }

// name writes a key of the contract, which needs no escapes.
func (w *writer) name(key string) {
	w.comma()
	w.buf = append(append(append(w.buf, '"'), key...), '"', ':')
}

func (w *writer) text(value string) {
	w.comma()
	w.buf = appendText(w.buf, value)
}

// field writes a string, also an empty one.
func (w *writer) field(key, value string) {
	w.name(key)
	w.text(value)
}

// optional writes a string unless it is empty.
func (w *writer) optional(key, value string) {
	if value != "" {
		w.field(key, value)
	}
}

func (w *writer) boolean(key string, value bool) {
	w.name(key)
	w.buf = strconv.AppendBool(w.buf, value)
}

// yes writes a boolean only when it is true.
func (w *writer) yes(key string, value bool) {
	if value {
		w.boolean(key, value)
	}
}

func (w *writer) integer(key string, value int64) {
	w.name(key)
	w.buf = strconv.AppendInt(w.buf, value, 10)
}

func (w *writer) positive(key string, value int64) {
	if value != 0 {
		w.integer(key, value)
	}
}

func (w *writer) time(key string, value identity.Time) {
	w.name(key)
	w.buf, _ = value.AppendText(append(w.buf, '"'))
	w.buf = append(w.buf, '"')
}

func (w *writer) optionalTime(key string, value *identity.Time) {
	if value != nil {
		w.time(key, *value)
	}
}

func (w *writer) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	w.name(key)
	w.open('[')
	for _, value := range values {
		w.text(value)
	}
	w.close(']')
}

func (w *writer) fail(key, rule string) {
	if w.err == nil {
		w.err = fmt.Errorf("encode %s: %s", key, rule)
	}
}

const hexDigits = "0123456789abcdef"

// appendText writes a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	clean := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}

		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			dst = append(append(dst, text[clean:i]...), "\ufffd"...)
		} else {
			dst = appendEscape(append(dst, text[clean:i]...), c)
		}

		i++
		clean = i
	}

	return append(append(dst, text[clean:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// members are keys that this contract does not know, kept for stored and forwarded documents.
type members []member

type member struct {
	key   string
	value json.RawMessage
}

// keep takes the current field of the reader as unknown.
func (m *members) keep(r *reader) {
	if len(*m) >= maxUnknownKeys {
		r.fail("is one unknown key too many")
		return
	}

	key := string(r.key)
	value := append(json.RawMessage(nil), r.span()...)
	for i := range *m {
		if (*m)[i].key == key {
			(*m)[i].value = value
			return
		}
	}
	*m = append(*m, member{key: key, value: value})
}

// sameDocument compares two values by what they write.
func sameDocument(a, b func([]byte) ([]byte, error)) bool {
	left, errLeft := a(nil)
	right, errRight := b(nil)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

// extra writes the unknown keys of an exported map, ordered by key.
func (w *writer) extra(values map[string]json.RawMessage) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !json.Valid(values[key]) {
			w.fail(key, "is not JSON")
			return
		}
		w.member(key, bytes.TrimSpace(values[key]))
	}
}

func (w *writer) textMap(key string, values map[string]string) {
	if len(values) == 0 {
		return
	}

	w.name(key)
	w.open('{')

	for _, name := range slices.Sorted(maps.Keys(values)) {
		w.text(name)
		w.buf = append(w.buf, ':')
		w.text(values[name])
	}
	w.close('}')
}

// raw writes free-form JSON as it stands; nothing and null count as absent.
func (w *writer) raw(key string, value json.RawMessage) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return
	}
	if !json.Valid(value) {
		w.fail(key, "is not JSON")
		return
	}

	w.name(key)
	w.buf = append(w.buf, value...)
}

// rawMap writes an object of free-form JSON, ordered by key.
func (w *writer) rawMap(key string, values map[string]json.RawMessage) {
	if len(values) == 0 {
		return
	}

	w.name(key)
	w.open('{')

	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := bytes.TrimSpace(values[name])
		if !json.Valid(value) {
			w.fail(key+"."+name, "is not JSON")
			return
		}
		w.member(name, value)
	}

	w.close('}')
}

// member writes a key that may need escapes, and its value.
func (w *writer) member(key string, value []byte) {
	w.text(key)
	w.buf = append(append(w.buf, ':'), value...)
}

// unknown writes the keys of a newer contract, in the order in which they came.
func (w *writer) unknown(list members) {
	for _, m := range list {
		w.member(m.key, m.value)
	}
}

// standard writes a rare value with encoding/json.
func (w *writer) standard(key string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		w.fail(key, err.Error())
		return
	}
	w.name(key)
	w.buf = append(w.buf, body...)
}

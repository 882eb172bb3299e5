package normalized

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"inbox/identity"
	"inbox/internal/fault"
)

// maxDepth bounds nesting in every document, also in those of our own store.
const maxDepth = 128

// maxUnknownKeys bounds the keys of a newer contract that one object may carry.
const maxUnknownKeys = 64

// reader walks once over a JSON document, without reflection. The first error stays and ends every loop. It knows the
// path of the value it reads, so that an error names the field.
type reader struct {
	data     []byte
	pos      int
	path     []step
	key      []byte // of the current field, unescaped
	nullable bool   // the next value may be null: it is a field, and null counts as absent
	answer   bool   // the document is an answer
	complete bool   // a text without a media type is text/plain
	strict   bool   // skip refuses duplicate keys and bytes that are not UTF-8
	depth    int    // allowed nesting
	err      error
}

// step is one level of nesting: inside an object with its current key, or inside an array at an index.
type step struct {
	key   []byte
	index int // -1 in an object
	begun bool
}

func newReader(data []byte) *reader {
	return &reader{data: data, depth: maxDepth, path: make([]step, 0, 8)}
}

// beginObject enters an object; false on null and on error.
func (r *reader) beginObject() bool { return r.begin('{', -1, "must be an object") }

// beginArray enters an array; false on null and on error.
func (r *reader) beginArray() bool { return r.begin('[', 0, "must be a list") }

func (r *reader) begin(open byte, index int, rule string) bool {
	if r.null() || !r.take(open, rule) {
		return false
	}
	if len(r.path) >= r.depth {
		r.fail("is nested too deeply")
		return false
	}
	r.path = append(r.path, step{index: index})
	return true
}

// field moves to the next field of the object and reads its key; false at the end.
func (r *reader) field() bool {
	if !r.more('}') {
		return false
	}
	if r.answer { // the key before is not that of this one
		r.path[len(r.path)-1].key = nil
	}
	r.key = r.text()
	r.path[len(r.path)-1].key = r.key
	r.nullable = true
	return r.err == nil && r.take(':', "misses a colon")
}

// element moves to the next element of the array; false at the end.
func (r *reader) element() bool {
	top := len(r.path) - 1
	if r.err == nil && r.path[top].begun {
		r.path[top].index++
	}
	return r.more(']')
}

// more steps over the comma before the next member, or over the end of the object or array.
func (r *reader) more(end byte) bool {
	if r.err != nil {
		return false
	}

	r.nullable = false
	top := &r.path[len(r.path)-1]

	if r.peek() == end {
		r.pos++
		r.path = r.path[:len(r.path)-1]
		return false
	}
	if top.begun {
		return r.take(',', "misses a comma")
	}

	top.begun = true
	return true
}

// null takes a null where it counts as an absent field.
func (r *reader) null() bool {
	if !r.nullable || r.peek() != 'n' {
		return false
	}
	return r.literal("null")
}

// end makes sure that nothing follows the document.
func (r *reader) end() error {
	if r.err == nil && r.peek() != 0 || r.err == nil && r.pos < len(r.data) {
		r.fail("has bytes after its end")
	}
	return r.err
}

// optional reads a value that may be absent as null.
func optional[T any](r *reader, read func(*reader, *T)) *T {
	if r.null() {
		return nil
	}
	value := new(T)
	read(r, value)
	return value
}

// text reads a string; null is the empty string.
func (r *reader) text() []byte {
	if r.null() {
		return nil
	}
	r.nullable = false
	if !r.take('"', "must be a string") {
		return nil
	}
	return r.quoted()
}

func (r *reader) string() string { return string(r.text()) }

func (r *reader) boolean() bool {
	switch {
	case r.null():
		return false
	case r.peek() == 't' && r.literal("true"):
		return true
	case r.peek() == 'f' && r.literal("false"):
		return false
	}

	r.fail("must be true or false")
	return false
}

// integer reads a whole number without fraction or exponent.
func (r *reader) integer() int64 {
	if r.err != nil || r.null() {
		return 0
	}

	r.peek()
	start := r.pos

	if !r.number() {
		r.err = nil // the rule says more than the byte
		r.fail("must be an integer")
		return 0
	}

	value, err := strconv.ParseInt(string(r.data[start:r.pos]), 10, 64)
	if err != nil {
		r.fail("must be an integer")
	}

	return value
}

func (r *reader) time() identity.Time {
	if r.null() {
		return identity.Time{}
	}
	value, err := identity.ParseTime(r.string())
	if err != nil {
		r.fail(err.Error())
	}
	return value
}

func (r *reader) strings() (list []string) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		list = append(list, r.string())
	}
	return list
}

// raw copies the next value as it stands; null is nil.
func (r *reader) raw() json.RawMessage {
	if r.null() {
		return nil
	}
	return append(json.RawMessage(nil), r.span()...)
}

// span steps over the next value and returns its bytes in place.
func (r *reader) span() []byte {
	r.peek()
	start := r.pos
	r.skip()
	if r.err != nil {
		return nil
	}
	return r.data[start:r.pos]
}

// standard reads a rare value with encoding/json.
func (r *reader) standard(target any) {
	data := r.span()
	if r.err != nil {
		return
	}

	err := json.Unmarshal(data, target)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
	case errors.As(err, &mismatch) && mismatch.Field != "":
		r.failAt(r.where()+"."+mismatch.Field, "must not be a "+mismatch.Value)
	case errors.As(err, &mismatch):
		r.fail("must not be a " + mismatch.Value)
	default:
		r.fail(err.Error())
	}
}

func (r *reader) fail(rule string) { r.failAt(r.where(), rule) }

func (r *reader) failAt(field, rule string) {
	if r.err != nil {
		return
	}
	if field == "" {
		rule = "the document " + rule
	}
	r.err = fault.InField(field, rule)
}

// syntax reports a byte that cannot stand where it stands.
func (r *reader) syntax() {
	r.fail("is not JSON at byte " + strconv.Itoa(r.pos))
}

// where writes the path of the current value, such as parts[2].mime.
func (r *reader) where() string {
	var b strings.Builder
	for _, s := range r.path {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case s.key != nil:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(printableKey(s.key))
		}
	}
	return b.String()
}

// printableKey makes a peer's key safe to show in an error.
func printableKey(key []byte) string {
	const longest = 64
	text := string(key[:min(len(key), longest)])
	if quoted := strconv.QuoteToASCII(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

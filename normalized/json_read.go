package normalized

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
func optional[T any](r *reader, read func(*T)) *T {
	if r.null() {
		return nil
	}
	value := new(T)
	read(value)
	return value
}

package normalized

import (
	"inbox/internal/fault"
)

// DecodeMessage reads a message from outside: its size is checked before it is parsed, then nesting, that no key comes
// twice, UTF-8 and the type of every field. Rules are checked by Validate. Errors are *fault.Fault of kind Malformed or
// TooLarge with the path of the field.
func DecodeMessage(data []byte, limits Limits) (Message, error) {
	var m Message
	err := decodeStrict(data, limits, func(r *reader) { r.message(&m) })
	return m, err
}

// DecodeResponse is DecodeMessage for the answer of an agent outside; ValidateResponse checks its rules.
func DecodeResponse(data []byte, limits Limits) (Response, error) {
	var out Response
	err := decodeStrict(data, limits, func(r *reader) { r.response(&out) })
	return out, err
}

// DecodeDelta is DecodeMessage for one step of a streamed answer; Fold checks its rules.
func DecodeDelta(data []byte, limits Limits) (Delta, error) {
	var d Delta
	err := decodeStrict(data, limits, func(r *reader) { r.delta(&d) })
	return d, err
}

func decodeStrict(data []byte, limits Limits, read func(*reader)) error {
	limits = limits.orDefault()
	if largest := limits.documentWithBytes(); len(data) > largest {
		return fault.Newf(fault.TooLarge, "the document is over %d bytes", largest)
	}
	if err := CheckJSON(data, limits.Depth); err != nil {
		return err
	}
	r := newReader(data)
	if r.peek() != '{' {
		return fault.New(fault.Malformed, "the document must be an object")
	}
	read(r)
	return r.end()
}

// CheckJSON reports whether data is one JSON value that nests no deeper than depth, is valid UTF-8 (also behind \u
// escapes) and has no key twice in one object, where two readers could understand two different documents (RFC 8259,
// section 4). Errors are *fault.Fault of kind Malformed.
func CheckJSON(data []byte, depth int) error {
	r := newReader(data)
	r.strict, r.depth = true, min(depth, maxDepth)
	r.skip()
	return r.end()
}

// freeDepth leaves room for the document around a free-form value inside Limits.Depth.
const freeDepth = 32

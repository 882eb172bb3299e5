package normalized

import (
	"encoding/json"
	"errors"
	"strconv"

	"inbox/identity"
)

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

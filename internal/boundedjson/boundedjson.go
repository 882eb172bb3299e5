// Package boundedjson bounds what a JSON document costs before a decoder sees it: how deep it nests, how many values it has,
// and that it is UTF-8. It reads the bytes once, in pieces of any size, and builds nothing. It does not check the syntax: what
// passes may still be no JSON, and the decoder says so.
package boundedjson

import (
	"fmt"
	"unicode/utf8"
)

// Limits bound a document. A zero member does not bound.
type Limits struct {
	Depth  int // containers inside each other
	Values int // members of objects and items of lists together
}

// Reasons of an Error.
const (
	TooDeep  = "nests too deeply"
	TooMany  = "has too many values"
	NotUTF8  = "is not UTF-8" // RFC 8259, section 8.1
	unbroken = ""
)

// Error is a document over a limit.
type Error struct {
	Reason string // TooDeep, TooMany or NotUTF8
	Limit  int    // zero for NotUTF8
	At     int64  // offset of the byte at fault
}

// Error returns the reason with the limit.
func (e *Error) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("JSON %s at byte %d", e.Reason, e.At)
	}
	return fmt.Sprintf("JSON %s (at most %d) at byte %d", e.Reason, e.Limit, e.At)
}

// Counter counts a document while it is read: it is the writer of an io.TeeReader. Its errors are *Error; after one, every
// further call returns it again.
type Counter struct {
	limits  Limits
	at      int64
	depth   int
	values  int
	quoted  bool
	escaped bool
	rest    []byte // the beginning of a character that the last piece cut
	failed  *Error
}

// NewCounter returns a Counter at the beginning of a document.
func NewCounter(limits Limits) *Counter {
	return &Counter{limits: limits, rest: make([]byte, 0, utf8.UTFMax)}
}

// Write counts the next piece.
func (c *Counter) Write(piece []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}

	taken := 0
	for len(c.rest) > 0 && taken < len(piece) {
		c.rest = append(c.rest, piece[taken])
		taken++
		if utf8.FullRune(c.rest) {
			if r, size := utf8.DecodeRune(c.rest); r == utf8.RuneError && size <= 1 || size < len(c.rest) {
				return taken, c.fail(NotUTF8, 0, int64(taken))
			}
			c.rest = c.rest[:0]
		}
	}

	for i := taken; i < len(piece); {
		char := piece[i]
		if char < utf8.RuneSelf {
			if c.quoted && char != '"' && char != '\\' && !c.escaped {
				i++
				continue
			}
			if reason, limit := c.count(char); reason != unbroken {
				return i, c.fail(reason, limit, int64(i))
			}
			i++
			continue
		}

		c.escaped = false
		if !utf8.FullRune(piece[i:]) {
			c.rest = append(c.rest, piece[i:]...)
			break
		}

		r, size := utf8.DecodeRune(piece[i:])
		if r == utf8.RuneError && size <= 1 {
			return i, c.fail(NotUTF8, 0, int64(i))
		}

		i += size
	}

	c.at += int64(len(piece))
	return len(piece), nil
}

// Close reports a document that ends inside a character.
func (c *Counter) Close() error {
	if c.failed == nil && len(c.rest) > 0 {
		return c.fail(NotUTF8, 0, 0)
	}
	if c.failed != nil {
		return c.failed
	}
	return nil
}

func (c *Counter) fail(reason string, limit int, offset int64) error {
	c.failed = &Error{Reason: reason, Limit: limit, At: c.at + offset}
	return c.failed
}

func (c *Counter) count(char byte) (reason string, limit int) {
	switch {
	case c.escaped:
		c.escaped = false
	case c.quoted && char == '\\':
		c.escaped = true
	case char == '"':
		c.quoted = !c.quoted
	case c.quoted:
	case char == '{', char == '[':
		c.values++ // the first member or item
		if c.depth++; c.limits.Depth > 0 && c.depth > c.limits.Depth {
			return TooDeep, c.limits.Depth
		}
	case char == ',':
		c.values++
	case char == '}', char == ']':
		c.depth--
	}

	if c.limits.Values > 0 && c.values > c.limits.Values {
		return TooMany, c.limits.Values
	}
	return unbroken, 0
}

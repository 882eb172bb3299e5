// Package uniquejson refuses JSON that two readers could read differently: a member that is in one object twice (RFC 8259, section 4;
// RFC 8725, section 2.4). It decodes nothing.
package uniquejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

const (
	maxMembers = 1000 // of the whole document
	maxDepth   = 32
)

// Object returns an error unless the body is one object in which no object has a name twice. The body's own names must differ in more
// than case, because encoding/json takes them for one; inside, names in two cases are two, such as those of OAuth clients.
func Object(body []byte) error {
	if !utf8.Valid(body) || !json.Valid(body) {
		return errors.New("not JSON")
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return errors.New("not an object")
	}

	reader := &reader{decoder: json.NewDecoder(bytes.NewReader(body))}
	return reader.value(0)
}

type reader struct {
	decoder *json.Decoder
	members int
}

// value reads one value to its end.
func (r *reader) value(depth int) error {
	token, err := r.decoder.Token()
	if err != nil {
		return errors.New("not JSON")
	}
	if depth > maxDepth {
		return errors.New("too many levels")
	}

	switch token {
	case json.Delim('{'):
		return r.object(depth)
	case json.Delim('['):
		for r.decoder.More() {
			if err := r.value(depth + 1); err != nil {
				return err
			}
		}
		return r.end()
	}
	return nil
}

func (r *reader) object(depth int) error {
	seen := map[string]bool{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		name, is := token.(string)
		if err != nil || !is {
			return errors.New("not JSON")
		}

		if depth == 0 {
			name = fold(name)
		}
		if seen[name] {
			return errors.New("a member is a duplicate")
		}
		seen[name] = true
		if r.members++; r.members > maxMembers {
			return errors.New("too many members")
		}

		if err := r.value(depth + 1); err != nil {
			return err
		}
	}
	return r.end()
}

// end reads the closing bracket.
func (r *reader) end() error {
	if _, err := r.decoder.Token(); err != nil {
		return errors.New("not JSON")
	}
	return nil
}

// fold returns the form that all names have which encoding/json matches with one field: it also takes ſ for s and K (Kelvin) for k.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

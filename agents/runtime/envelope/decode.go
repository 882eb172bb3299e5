package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Limits bounds what Decode accepts. Zero means the default of the field.
type Limits struct {
	Bytes int // length of the text, default 4 MiB
	Depth int // containers inside each other, default 64
}

const (
	defaultBytes = 4 << 20
	defaultDepth = 64
)

// tooLargeError is what Decode returns for a text over a limit.
type tooLargeError struct {
	what  string
	limit int
}

func (e tooLargeError) Error() string {
	return fmt.Sprintf("JSON has more than %d %s", e.limit, e.what)
}

// TooLarge tells whether an error of Decode is about a limit and not about the text.
func TooLarge(err error) bool {
	_, is := err.(tooLargeError) //nolint:errorlint // Decode returns it unwrapped
	return is
}

// Decode reads exactly one JSON value: object = map[string]any, list = []any, number = json.Number, string, bool, nil.
// Size and depth are checked before anything is built.
func Decode(data []byte, limits Limits) (any, error) {
	if limits.Bytes <= 0 {
		limits.Bytes = defaultBytes
	}
	if limits.Depth <= 0 {
		limits.Depth = defaultDepth
	}
	if len(data) > limits.Bytes {
		return nil, tooLargeError{"bytes", limits.Bytes}
	}
	if deeper(data, limits.Depth) {
		return nil, tooLargeError{"levels", limits.Depth}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("read JSON: text follows the value")
	}
	return value, nil
}

// deeper tells whether containers nest deeper than the limit. Brackets inside strings do not count.
func deeper(data []byte, limit int) bool {
	depth, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

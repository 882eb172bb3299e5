package value

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
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

// TooLarge reports whether an error of Decode is about a limit and not about the text.
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

// deeper reports whether containers nest deeper than the limit. Brackets inside strings do not count.
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

// Encode writes a value as compact JSON: no spaces, members sorted by name, "<", ">" and "&" as they are, a nil map as
// {} and a nil list as []. It is the form of tool_result contents.
func Encode(value any) ([]byte, error) { return appendValue(nil, value) }

// EncodeText is Encode as a string; what cannot be written as JSON becomes "null".
func EncodeText(value any) string {
	data, err := Encode(value)
	if err != nil {
		return "null"
	}
	return string(data)
}

func appendValue(to []byte, value any) (_ []byte, err error) {
	switch v := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case bool:
		return strconv.AppendBool(to, v), nil
	case string:
		return appendText(to, v), nil
	case int:
		return strconv.AppendInt(to, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(to, v, 10), nil
	case map[string]any:
		return appendObject(to, v)
	case []any:
		to = append(to, '[')
		for i, item := range v {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = appendValue(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	}

	data, err := marshal(value)
	return append(to, data...), err
}

func appendObject(to []byte, object map[string]any) (_ []byte, err error) {
	to = append(to, '{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendText(to, key), ':')
		if to, err = appendValue(to, object[key]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			data, _ := marshal(text)
			return append(to, data...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

func marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// writableDepth is the nesting at which the runtime's own writer gives up; it also ends values that hold themselves.
const writableDepth = 510

// Writable reports whether the runtime's own writer could write the value as JSON, from the given depth on.
func Writable(value any, depth int) bool {
	if depth > writableDepth {
		return false
	}

	switch v := value.(type) {
	case nil, string, bool, int, int64, json.Number, []string:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case map[string]any:
		for _, member := range v {
			if !Writable(member, depth+1) {
				return false
			}
		}
		return true
	case []any:
		for _, item := range v {
			if !Writable(item, depth+1) {
				return false
			}
		}
		return true
	}

	_, err := json.Marshal(value)
	return err == nil
}

package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
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
	if _, err := decoder.Token(); err != io.EOF { //nolint:errorlint // Token returns io.EOF itself
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

// Clone copies a value with everything inside.
func Clone[T any](value T) T {
	copied, _ := clone(any(value)).(T)
	return copied
}

func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		object := make(map[string]any, len(v))
		for key, member := range v {
			object[key] = clone(member)
		}
		return object
	case []any:
		if v == nil {
			return v
		}
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = clone(item)
		}
		return list
	case []map[string]any:
		list := make([]map[string]any, len(v))
		for i, item := range v {
			list[i] = Clone(item)
		}
		return list
	case []string:
		return slices.Clone(v)
	}
	return value
}

// Equal compares two values the way the runtime does: objects without order, lists with order, an empty object equals
// an empty list, numbers by value (1 equals 1.0), everything else exactly.
func Equal(a, b any) bool {
	a, b = Plain(a), Plain(b)
	if empty(a) && empty(b) {
		return true
	}
	switch left := a.(type) {
	case map[string]any:
		right, is := b.(map[string]any)
		return is && maps.EqualFunc(left, right, func(x, y any) bool { return Equal(x, y) })
	case []any:
		right, is := b.([]any)
		return is && slices.EqualFunc(left, right, func(x, y any) bool { return Equal(x, y) })
	case json.Number:
		right, is := b.(json.Number)
		return is && decimal(left.String()) == decimal(right.String())
	}
	return a == b
}

func empty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// Plain gives a value the types that Decode gives, one level deep: Go numbers become json.Number and typed slices and
// maps become []any and map[string]any. What is no JSON stays as it is.
func Plain(value any) any {
	switch v := value.(type) {
	case nil, string, bool, json.Number, map[string]any, []any:
		return v
	case int:
		return json.Number(strconv.Itoa(v))
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case float64:
		return json.Number(strconv.FormatFloat(v, 'g', -1, 64))
	case []string:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = item
		}
		return list
	case []map[string]any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = item
		}
		return list
	}
	data, err := json.Marshal(value)
	if err != nil {
		return value
	}
	plain, err := Decode(data, Limits{Bytes: len(data), Depth: 1000})
	if err != nil {
		return value
	}
	return plain
}

// decimal brings the text of a number into one form: sign, digits without zeros at the ends, exponent. It costs the
// length of the text whatever the exponent says.
func decimal(number string) string {
	mantissa, sign := number, ""
	if strings.HasPrefix(mantissa, "-") {
		mantissa, sign = mantissa[1:], "-"
	}
	exponent := new(big.Int)
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		if i+40 < len(mantissa) {
			return number
		}
		if _, ok := exponent.SetString(strings.TrimPrefix(mantissa[i+1:], "+"), 10); !ok {
			return number
		}
		mantissa = mantissa[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	short := strings.TrimRight(digits, "0")
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(short))))
	return sign + short + "e" + exponent.String()
}

// Object gives an object; an empty list counts as an empty object, for the runtime cannot tell them apart.
func Object(value any) (map[string]any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return v, v != nil
	case []any:
		return map[string]any{}, v != nil && len(v) == 0
	}
	return nil, false
}

// Assoc gives the object itself, not a copy, and a new empty object for everything else.
func Assoc(value any) map[string]any {
	if object, is := Object(value); is {
		return object
	}
	return map[string]any{}
}

// List gives a list; an empty object counts as an empty list.
func List(value any) ([]any, bool) {
	switch v := value.(type) {
	case []any:
		return v, v != nil
	case map[string]any:
		return []any{}, v != nil && len(v) == 0
	case []map[string]any, []string:
		list, is := Plain(v).([]any)
		return list, is
	}
	return nil, false
}

// Container tells whether the value is an object or a list.
func Container(value any) bool {
	_, object := Object(value)
	_, list := List(value)
	return object || list
}

// Text gives a string and "" for everything else.
func Text(value any) string {
	text, _ := value.(string)
	return text
}

// NonBlank gives a trimmed string and whether anything is left of it.
func NonBlank(value any) (string, bool) {
	text := Trim(Text(value))
	return text, text != ""
}

// Trim cuts space, tab, line feed, carriage return, NUL and vertical tab from both ends, as the runtime does.
func Trim(text string) string { return strings.Trim(text, " \t\n\r\x00\v") }

// Integer gives the value of a number that is written as an integer (no point, no exponent) and fits in 64 bits. A
// float is none, even if it is whole (agent runtime contract, section 1.2).
func Integer(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case json.Number:
		number, err := strconv.ParseInt(v.String(), 10, 64)
		return number, err == nil
	}
	return 0, false
}

// Number tells whether the value is a number.
func Number(value any) bool {
	switch value.(type) {
	case int, int64, float64, json.Number:
		return true
	}
	return false
}

// Encode writes a value as compact JSON: no spaces, members sorted by name, "<", ">" and "&" as they are, a nil map as
// {} and a nil list as []. It is the form of tool_result contents.
func Encode(value any) ([]byte, error) { return appendValue(nil, value) }

// EncodeText is Encode as a string; what cannot be written as JSON gives "null".
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

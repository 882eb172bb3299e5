// Package value reads what is really open: JSON whose shape its writer chose. It reads members with a type, copies and
// compares values the way the reference runtime does, and decodes and encodes JSON within bounds. Values are of the types
// that Decode returns; builders may also put Go integers, floats, and slices of texts and objects.
package value

import (
	"encoding/json"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

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

// Plain converts a value to the types that Decode returns, one level deep: Go numbers become json.Number and typed slices and
// maps become []any and map[string]any. What is not JSON stays as it is.
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

// Object returns an object; an empty list counts as an empty object, for the runtime cannot tell them apart.
func Object(value any) (map[string]any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return v, v != nil
	case []any:
		return map[string]any{}, v != nil && len(v) == 0
	}
	return nil, false
}

// Assoc returns the object itself, not a copy, and a new empty object for everything else.
func Assoc(value any) map[string]any {
	if object, is := Object(value); is {
		return object
	}
	return map[string]any{}
}

// List returns a list; an empty object counts as an empty list.
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

// Container reports whether the value is an object or a list.
func Container(value any) bool {
	_, object := Object(value)
	_, list := List(value)
	return object || list
}

// Text returns a string and "" for everything else.
func Text(value any) string {
	text, _ := value.(string)
	return text
}

// NonBlank returns a trimmed string and whether anything is left of it.
func NonBlank(value any) (string, bool) {
	text := Trim(Text(value))
	return text, text != ""
}

// Trim cuts space, tab, line feed, carriage return, NUL and vertical tab from both ends, as the runtime does.
func Trim(text string) string { return strings.Trim(text, " \t\n\r\x00\v") }

// Integer returns the value of a number that is written as an integer (no point, no exponent) and fits in 64 bits. A
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

// Flag reports whether the value is the boolean true; nothing else counts.
func Flag(value any) bool {
	flag, is := value.(bool)
	return is && flag
}

// Number reports whether the value is a number.
func Number(value any) bool {
	switch value.(type) {
	case int, int64, float64, json.Number:
		return true
	}
	return false
}

// Truthy reads a value of any type as a flag: null, zero, "", "0" and empty containers are false.
func Truthy(value any) bool {
	switch v := Plain(value).(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != "" && v != "0"
	case json.Number:
		return decimal(v.String()) != "0"
	}
	return !empty(value)
}

// Scalar writes a string, number or flag as text; false, null and containers are "". A float is written in the
// recorded form: shortest digits, 1.0E+25 from 1e17 up and 1.0E-5 below 1e-4.
func Scalar(value any) string {
	switch v := Plain(value).(type) {
	case string:
		return v
	case bool:
		if v {
			return "1"
		}
	case json.Number:
		if number, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return strconv.FormatInt(number, 10)
		}
		if number, err := strconv.ParseFloat(v.String(), 64); err == nil {
			return floatText(number)
		}
		return v.String()
	}
	return ""
}

func floatText(number float64) string {
	size := math.Abs(number)
	if number == 0 || (size >= 1e-4 && size < 1e17) {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(number, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	return mantissa + "E" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}

// Elements returns the items of a list, or the values of an object in the order of its keys; nothing for anything else.
func Elements(value any) []any {
	if list, is := List(Plain(value)); is {
		return list
	}
	object, _ := Object(Plain(value))
	elements := make([]any, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		elements = append(elements, object[key])
	}
	return elements
}

// Lower writes the letters A to Z small and leaves every other character alone, so that no two alphabets meet in one
// identifier (U+212A, the Kelvin sign, is no k).
func Lower(text string) string {
	return strings.Map(func(char rune) rune {
		if 'A' <= char && char <= 'Z' {
			return char + 'a' - 'A'
		}
		return char
	}, text)
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
		return is && maps.EqualFunc(left, right, Equal)
	case []any:
		right, is := b.([]any)
		return is && slices.EqualFunc(left, right, Equal)
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

package envelope

import (
	"encoding/json"
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

// Flag tells whether the value is the boolean true; nothing else counts.
func Flag(value any) bool {
	flag, is := value.(bool)
	return is && flag
}

// Number tells whether the value is a number.
func Number(value any) bool {
	switch value.(type) {
	case int, int64, float64, json.Number:
		return true
	}
	return false
}

package task

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"inbox/agents/runtime/value"
)

// members gives a copy of an object; a list has no members, so it becomes an empty object. is = the value is either.
func members(given any) (object map[string]any, is bool) {
	object, _ = value.Object(given)
	if object == nil {
		return map[string]any{}, value.Container(given)
	}
	return maps.Clone(object), true
}

func assoc(value any) map[string]any {
	object, _ := members(value)
	return object
}

// items gives a copy of a list, or the values of an object in the order of its keys.
func items(given any) (list []any, is bool) {
	if object, ok := given.(map[string]any); ok && object != nil {
		list = make([]any, 0, len(object))
		for _, key := range slices.Sorted(maps.Keys(object)) {
			list = append(list, object[key])
		}
		return list, true
	}
	list, is = value.List(given)
	return append([]any{}, list...), is
}

// word gives a scalar as trimmed text, "" for anything else.
func word(given any) string { return value.Trim(value.Scalar(given)) }

// firstWord gives the first value that has a word.
func firstWord(values ...any) string {
	for _, value := range values {
		if found := word(value); found != "" {
			return found
		}
	}
	return ""
}

// words gives the distinct words of a list; a scalar counts as a list of one.
func words(value any) []string {
	list, is := items(value)
	if !is {
		list = []any{value}
	}
	found := []string{}
	for _, item := range list {
		if one := word(item); one != "" && !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}

// count reads a number, also one written as text, as a whole number of at least zero.
func count(given any) (int64, bool) {
	written := value.Plain(given)
	if said, is := written.(string); is {
		written = json.Number(value.Trim(said))
	}
	number, is := written.(json.Number)
	if !is {
		return 0, false
	}
	if whole, err := strconv.ParseInt(number.String(), 10, 64); err == nil {
		return whole, whole >= 0
	}
	if strings.ContainsAny(number.String(), "xXpP_iInN") {
		return 0, false // forms of Go, not of JSON
	}
	parsed, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || parsed <= -1 || parsed >= math.MaxInt64 {
		return 0, false
	}
	return int64(parsed), true
}

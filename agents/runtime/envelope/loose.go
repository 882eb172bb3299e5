package envelope

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

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

// Elements gives the items of a list, or the values of an object in the order of its keys; nothing for anything else.
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

package value

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// The reference runtime reads numbers loosely, and each place in its own way. The ways differ in what they make of
// booleans, texts, fractions and what is out of range; the recorded cases hold each of them.

// written returns the number of a value, or the text of one, as JSON writes numbers. The text is not checked.
func written(given any) (json.Number, bool) {
	switch plain := Plain(given).(type) {
	case json.Number:
		return plain, true
	case string:
		return json.Number(Trim(plain)), true
	}
	return "", false
}

// Float reads a number, the text of a number, or a boolean; everything else is 0. Out of range it is infinite: see
// Finite.
func Float(given any) float64 {
	switch typed := given.(type) {
	case json.Number:
		number, _ := typed.Float64()
		return number
	case int:
		return float64(typed)
	case int64:
		return float64(typed)
	case float64:
		return typed
	case string:
		number, _ := strconv.ParseFloat(Trim(typed), 64)
		return number
	case bool:
		if typed {
			return 1
		}
	}
	return 0
}

// Finite keeps a number writable as JSON.
func Finite(number float64) float64 {
	if math.IsInf(number, 0) || math.IsNaN(number) {
		return math.Copysign(math.MaxFloat64, number)
	}
	return number
}

var decimalForm = regexp.MustCompile(`\A[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\z`)

// FiniteNumber reads a finite number, also one written as text.
func FiniteNumber(given any) (float64, bool) {
	number, is := written(given)
	if !is || !decimalForm.MatchString(number.String()) {
		return 0, false
	}
	found, _ := strconv.ParseFloat(number.String(), 64) // out of range is infinite or zero
	return found, !math.IsInf(found, 0)
}

// Int32 reads a whole number from a number or the text of one, cutting what is behind the point; the limits of 32 bits
// hold. A boolean is 0.
func Int32(given any) int {
	if whole, is := Integer(given); is {
		return int(whole)
	}
	if _, is := given.(bool); is {
		return 0
	}

	number := Float(given)
	switch {
	case math.IsNaN(number):
		return 0
	case number >= math.MaxInt32:
		return math.MaxInt32
	case number <= math.MinInt32:
		return math.MinInt32
	}

	return int(number)
}

// Count reads a number, also one written as text, as a whole number of at least zero.
func Count(given any) (int64, bool) {
	number, is := written(given)
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

// LeadingInteger reads a number, a boolean or the digits at the start of a text; everything else is 0.
func LeadingInteger(given any) int64 {
	var text string
	switch plain := Plain(given).(type) {
	case bool:
		if plain {
			return 1
		}
		return 0
	case string:
		text = plain
	case json.Number:
		text = plain.String()
	}

	text = strings.TrimLeft(text, " \t\n\r\v\f")
	if number, is := DecimalText(text); is {
		if math.Abs(number) < 1<<62 {
			return int64(number)
		}
		return math.MaxInt64
	}

	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}

	number, _ := strconv.ParseInt(text[:end], 10, 64)
	return number
}

// DecimalText reads a text that looks like a decimal number; spaces around it are allowed.
func DecimalText(text string) (float64, bool) {
	text = strings.Trim(text, " \t\n\r\v\f")
	if text == "" || strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(number, 0) {
		return 0, false
	}
	return number, true
}

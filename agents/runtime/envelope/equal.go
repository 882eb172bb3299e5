package envelope

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
)

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

package loop

import (
	"encoding/json"
	"math"
	"strconv"

	"inbox/agents/runtime/value"
)

// newUsage is what a run starts with (agent runtime contract, section 3.2).
func newUsage() map[string]any {
	return map[string]any{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
}

// addUsage adds the usage of one turn: numbers are summed, other values replace what was there. Integers stay integers
// as long as their sum is exact.
func addUsage(total, turn map[string]any) {
	for name, given := range turn {
		if !value.Number(given) {
			total[name] = given
			continue
		}
		total[name] = sum(total[name], given)
	}
}

func sum(left, right any) any {
	a, leftExact := value.Integer(left)
	b, rightExact := value.Integer(right)
	if left == nil {
		a, leftExact = 0, true
	}
	if leftExact && rightExact {
		if total := a + b; (total > a) == (b > 0) {
			return total
		}
	}
	return finite(float(left) + float(right))
}

// finite keeps a sum writable as JSON.
func finite(number float64) float64 {
	if math.IsInf(number, 0) || math.IsNaN(number) {
		return math.Copysign(math.MaxFloat64, number)
	}
	return number
}

// float reads a number, the text of a number, or a boolean; everything else is 0.
func float(given any) float64 {
	switch typed := given.(type) {
	case json.Number:
		number, _ := typed.Float64() // out of range gives infinity, which finite mends
		return number
	case int:
		return float64(typed)
	case int64:
		return float64(typed)
	case float64:
		return typed
	case string:
		number, _ := strconv.ParseFloat(value.Trim(typed), 64)
		return number
	case bool:
		if typed {
			return 1
		}
	}
	return 0
}

// integer reads a whole number from a number or the text of one, cutting what is behind the point; limits hold.
func integer(given any) int {
	if whole, is := value.Integer(given); is {
		return int(whole)
	}
	if _, is := given.(bool); is {
		return 0
	}
	number := float(given)
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

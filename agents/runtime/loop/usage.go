package loop

import (
	"encoding/json"
	"math"
	"strconv"

	"inbox/agents/runtime/envelope"
)

// newUsage is what a run starts with (agent runtime contract, section 3.2).
func newUsage() map[string]any {
	return map[string]any{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
}

// addUsage adds the usage of one turn: numbers are summed, other values replace what was there. Integers stay integers
// as long as their sum is exact.
func addUsage(total, turn map[string]any) {
	for name, value := range turn {
		if !envelope.Number(value) {
			total[name] = value
			continue
		}
		total[name] = sum(total[name], value)
	}
}

func sum(left, right any) any {
	a, leftExact := envelope.Integer(left)
	b, rightExact := envelope.Integer(right)
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
func float(value any) float64 {
	switch value := value.(type) {
	case json.Number:
		number, _ := value.Float64() // out of range gives infinity, which finite mends
		return number
	case int:
		return float64(value)
	case int64:
		return float64(value)
	case float64:
		return value
	case string:
		number, _ := strconv.ParseFloat(envelope.Trim(value), 64)
		return number
	case bool:
		if value {
			return 1
		}
	}
	return 0
}

// integer reads a whole number from a number or the text of one, cutting what is behind the point; limits hold.
func integer(value any) int {
	if whole, is := envelope.Integer(value); is {
		return int(whole)
	}
	if _, is := value.(bool); is {
		return 0
	}
	number := float(value)
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

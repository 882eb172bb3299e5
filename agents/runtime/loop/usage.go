package loop

import (
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
	return value.Finite(value.Float(left) + value.Float(right))
}

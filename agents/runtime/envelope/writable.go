package envelope

import (
	"encoding/json"
	"math"
)

// writableDepth is the nesting at which the runtime's own writer gives up; it also ends values that hold themselves.
const writableDepth = 510

func writable(value any, depth int) bool {
	if depth > writableDepth {
		return false
	}
	switch v := value.(type) {
	case nil, string, bool, int, int64, json.Number, []string:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case map[string]any:
		for _, member := range v {
			if !writable(member, depth+1) {
				return false
			}
		}
		return true
	case []any:
		for _, item := range v {
			if !writable(item, depth+1) {
				return false
			}
		}
		return true
	}
	_, err := json.Marshal(value)
	return err == nil
}

package normalized

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"inbox/internal/fault"
)

// free checks JSON whose form the contract leaves open.
func (c *checker) free(at *place, name string, value json.RawMessage, limit int) {
	if len(value) == 0 {
		return
	}
	field := key(at, name)
	if len(value) > limit {
		c.over(&field, limit)
		return
	}
	if err := CheckJSON(value, freeDepth); err != nil {
		c.broken(&field, "must be plain JSON: "+fault.Of(err).Public)
	}
}

func (c *checker) freeMap(at *place, values map[string]json.RawMessage) {
	if len(values) > maxUnknownKeys {
		c.broken(at, fmt.Sprintf("has more than %d keys", maxUnknownKeys))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.machine(at, name, name, c.limits.Name, true)
		if value := bytes.TrimSpace(values[name]); len(value) == 0 || value[0] != '{' {
			field := key(at, name)
			c.broken(&field, "must be an object")
			continue
		}
		c.free(at, name, values[name], c.limits.ToolJSON)
	}
}

package request

import (
	"encoding/json"
	"strconv"

	"inbox/agents/envelope"
)

func blank(value string) bool { return envelope.Trim(value) == "" }

// container keeps objects and lists; everything else becomes an empty object.
func container(value any) any {
	if envelope.Container(value) {
		return value
	}
	return map[string]any{}
}

// truthy reads a flag that may come as another JSON type: zero, "", "0" and empty containers are false.
func truthy(value any) bool {
	switch found := value.(type) {
	case nil:
		return false
	case bool:
		return found
	case string:
		return found != "" && found != "0"
	case []any:
		return len(found) > 0
	case map[string]any:
		return len(found) > 0
	}
	number, ok := float(value)
	return !ok || number != 0
}

// float reads a JSON number in any of its Go forms.
func float(value any) (float64, bool) {
	number, ok := envelope.Plain(value).(json.Number)
	if !ok {
		return 0, false
	}
	found, err := strconv.ParseFloat(number.String(), 64)
	return found, err == nil || found != 0
}

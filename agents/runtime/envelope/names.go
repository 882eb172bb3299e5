package envelope

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// argumentNames lists the names of the parameters: as written if that is known, else sorted. The entries of a list are
// named by their positions.
func argumentNames(parameters any, written [][]string, index int) []any {
	names := []any{}
	switch v := parameters.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if index < len(written) && len(written[index]) == len(v) {
			keys = written[index]
		}
		for _, key := range keys {
			names = append(names, key)
		}
	case []any:
		for i := range v {
			names = append(names, strconv.Itoa(i))
		}
	}
	return names
}

// parameterNames reads the names of every tool event's parameters in the order of the text. It is only called with a
// text that Decode accepted; events of other shapes have no names.
func parameterNames(data []byte) [][]string {
	var document struct {
		ToolEvents []json.RawMessage `json:"tool_events"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil
	}
	names := make([][]string, len(document.ToolEvents))
	for i, text := range document.ToolEvents {
		var event struct {
			Metadata struct {
				Parameters json.RawMessage `json:"parameters"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(text, &event); err == nil {
			names[i] = memberNames(event.Metadata.Parameters)
		}
	}
	return names
}

// memberNames reads the names of an object's members in the order of their first appearance.
func memberNames(object json.RawMessage) []string {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return nil
	}
	var names []string
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		name, is := token.(string)
		var member json.RawMessage
		if err != nil || !is || decoder.Decode(&member) != nil {
			return nil
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

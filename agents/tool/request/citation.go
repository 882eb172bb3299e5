package request

import (
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

	"inbox/agents/envelope"
)

// citationTexts are the members of a citation that are texts (agent runtime contract, section 4.5).
var citationTexts = []string{"source", "source_id", "item_id", "fragment_id", "source_title", "source_url", "excerpt"}

// citedMetadata keeps metadata and brings its citations into form.
func citedMetadata(value any) any {
	metadata, ok := container(value).(map[string]any)
	if !ok {
		return value
	}
	raw, cited := metadata["citations"]
	if !cited {
		return metadata
	}
	metadata = maps.Clone(metadata)
	metadata["citations"] = citations(raw)
	return metadata
}

func citations(value any) []any {
	normalized := []any{}
	for _, entry := range entries(value) {
		if members, ok := entry.(map[string]any); ok {
			if one := citation(members); len(one) > 0 {
				normalized = append(normalized, one)
			}
		}
	}
	return normalized
}

// entries gives the values of a list, or of an object in the order of its keys.
func entries(value any) []any {
	switch found := value.(type) {
	case []any:
		return found
	case map[string]any:
		var values []any
		for _, key := range slices.Sorted(maps.Keys(found)) {
			values = append(values, found[key])
		}
		return values
	}
	return nil
}

func citation(raw map[string]any) map[string]any {
	normalized := maps.Clone(raw)
	for _, name := range citationTexts {
		delete(normalized, name)
		if said := envelope.Trim(scalar(raw[name])); said != "" {
			normalized[name] = said
		}
	}
	delete(normalized, "score")
	if score, ok := numeric(raw["score"]); ok {
		normalized["score"] = score
	}
	return normalized
}

// scalar writes a string, number or flag as text; false, null and containers are "".
func scalar(value any) string {
	switch found := value.(type) {
	case string:
		return found
	case json.Number:
		return found.String()
	case bool:
		if found {
			return "1"
		}
		return ""
	}
	if number, ok := float(value); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return ""
}

var number = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`)

// numeric reads a finite number, also one written as text.
func numeric(value any) (float64, bool) {
	if said, ok := value.(string); ok {
		if !number.MatchString(envelope.Trim(said)) {
			return 0, false
		}
		value = json.Number(envelope.Trim(said))
	}
	found, ok := float(value)
	return found, ok && !math.IsInf(found, 0) && !math.IsNaN(found)
}

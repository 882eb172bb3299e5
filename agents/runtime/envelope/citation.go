package envelope

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"

	"inbox/agents/runtime/value"
)

// citationTexts are the members of a citation that are texts (agent runtime contract, section 4.5).
var citationTexts = []string{"source", "source_id", "item_id", "fragment_id", "source_title", "source_url", "excerpt"}

// Citations normalizes the list under metadata.citations of a tool's result: texts are trimmed, the score becomes a
// finite number, what does not fit is left out and so are empty citations; other members stay (agent runtime contract,
// section 4.5).
func Citations(given any) []any {
	kept := []any{}
	for _, item := range value.Elements(given) {
		if raw, is := value.Plain(item).(map[string]any); is {
			if one := citation(raw); len(one) > 0 {
				kept = append(kept, one)
			}
		}
	}
	return kept
}

func citation(raw map[string]any) map[string]any {
	normalized := value.Clone(raw)
	for _, name := range citationTexts {
		delete(normalized, name)
		if text := value.Trim(value.Scalar(raw[name])); text != "" {
			normalized[name] = text
		}
	}
	delete(normalized, "score")
	if score, is := score(raw["score"]); is {
		normalized["score"] = score
	}
	return normalized
}

var number = regexp.MustCompile(`\A[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\z`)

// score reads a finite number, also one written as text.
func score(given any) (float64, bool) {
	written := value.Plain(given)
	if text, is := written.(string); is {
		written = json.Number(value.Trim(text))
	}
	text, is := written.(json.Number)
	if !is || !number.MatchString(text.String()) {
		return 0, false
	}
	found, _ := strconv.ParseFloat(text.String(), 64) // out of range is infinite or zero
	return found, !math.IsInf(found, 0)
}

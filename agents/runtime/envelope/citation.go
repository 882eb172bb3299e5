package envelope

import (
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
	if score, is := value.FiniteNumber(raw["score"]); is {
		normalized["score"] = score
	}
	return normalized
}

package tool

import (
	"maps"

	"inbox/agents/envelope"
)

// CitationsKey is the member of metadata that holds citations.
const CitationsKey = "citations"

const failedText = "Tool execution failed."

// ErrorResult is the normalized result of a failure.
func ErrorResult(name, text string, metadata, runtime map[string]any) map[string]any {
	return NormalizeResult(map[string]any{
		"success": false, "tool_name": name, "error": text, "metadata": metadata, "runtime": runtime,
	}, name)
}

// NormalizeResult brings what a tool or a mediator returned into its one form: {success, tool_name, metadata, runtime?,
// status?, runtime_tool_request?, result | error}. An object without tool_name gets the given one (agent runtime
// contract, section 4.5).
func NormalizeResult(result map[string]any, name string) map[string]any {
	if declared := envelope.Text(result["tool_name"]); declared != "" {
		name = declared
	}
	success := truthy(result["success"])
	normalized := map[string]any{"success": success, "tool_name": name, "metadata": resultMetadata(result)}
	if runtime := RuntimeMetadata(result["runtime"]); len(runtime) > 0 {
		normalized["runtime"] = runtime
	}
	if status, ok := envelope.NonBlank(result["status"]); ok {
		normalized["status"] = status
	}
	if request := result["runtime_tool_request"]; isContainer(request) {
		normalized["runtime_tool_request"] = envelope.Clone(envelope.Plain(request))
	}
	if success {
		normalized["result"] = resultBody(result["result"])
		return normalized
	}
	normalized["error"] = failedText
	if text := envelope.Text(result["error"]); text != "" {
		normalized["error"] = text
	}
	return normalized
}

func resultBody(body any) any {
	if body == nil {
		return []any{}
	}
	return envelope.Clone(envelope.Plain(body))
}

// resultMetadata normalizes citations and takes in an error_type that stands beside the metadata.
func resultMetadata(result map[string]any) map[string]any {
	metadata := maps.Clone(members(result["metadata"]))
	if citations, has := metadata[CitationsKey]; has {
		metadata[CitationsKey] = NormalizeCitations(citations)
	}
	if kind, ok := envelope.NonBlank(result["error_type"]); ok && metadata["error_type"] == nil {
		metadata["error_type"] = kind
	}
	return metadata
}

// citationTexts are the members of a citation that are texts.
var citationTexts = []string{"source", "source_id", "item_id", "fragment_id", "source_title", "source_url", "excerpt"}

// NormalizeCitations normalizes the list under metadata.citations: texts are trimmed, the score becomes a number, what does not
// fit is left out and so are empty citations; other members stay (agent runtime contract, section 4.5).
func NormalizeCitations(value any) []any {
	kept := []any{}
	if !isContainer(value) {
		return kept
	}
	for _, item := range containerItems(value) {
		if raw, ok := envelope.Plain(item).(map[string]any); ok {
			if citation := citation(raw); len(citation) > 0 {
				kept = append(kept, citation)
			}
		}
	}
	return kept
}

func citation(raw map[string]any) map[string]any {
	normalized := envelope.Clone(raw)
	for _, name := range citationTexts {
		delete(normalized, name)
		if text := envelope.Trim(scalarText(raw[name])); text != "" {
			normalized[name] = text
		}
	}
	delete(normalized, "score")
	if score, ok := score(raw["score"]); ok {
		normalized["score"] = score
	}
	return normalized
}

func score(value any) (float64, bool) {
	switch value := envelope.Plain(value).(type) {
	case string:
		return decimalNumber(value)
	default:
		if envelope.Number(value) {
			return decimalNumber(scalarText(value))
		}
		return 0, false
	}
}

package tool

import (
	"maps"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
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
	if declared := value.Text(result["tool_name"]); declared != "" {
		name = declared
	}
	success := value.Truthy(result["success"])
	normalized := map[string]any{"success": success, "tool_name": name, "metadata": resultMetadata(result)}
	if runtime := RuntimeMetadata(result["runtime"]); len(runtime) > 0 {
		normalized["runtime"] = runtime
	}
	if status, ok := value.NonBlank(result["status"]); ok {
		normalized["status"] = status
	}
	if request := result["runtime_tool_request"]; value.PlainContainer(request) {
		normalized["runtime_tool_request"] = value.Clone(value.Plain(request))
	}
	if success {
		normalized["result"] = resultBody(result["result"])
		return normalized
	}
	normalized["error"] = failedText
	if text := value.Text(result["error"]); text != "" {
		normalized["error"] = text
	}
	return normalized
}

func resultBody(body any) any {
	if body == nil {
		return []any{}
	}
	return value.Clone(value.Plain(body))
}

// resultMetadata normalizes citations and takes in an error_type that stands beside the metadata.
func resultMetadata(result map[string]any) map[string]any {
	metadata := maps.Clone(value.Members(result["metadata"]))
	if citations, has := metadata[CitationsKey]; has {
		metadata[CitationsKey] = envelope.Citations(citations)
	}
	if kind, ok := value.NonBlank(result["error_type"]); ok && metadata["error_type"] == nil {
		metadata["error_type"] = kind
	}
	return metadata
}

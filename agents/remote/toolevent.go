package remote

import (
	"encoding/json"

	"inbox/normalized"
)

// toolEventsExtension shows calls of tools as data parts (message contract, section 11). It is activated because the operator
// of this server decides what readers see of them, as of the calls of any other agent.
const toolEventsExtension = "https://mentionable.dev/ns/a2a-tool-events/v0.1"

const citationKey = "citation" // in metadata.mentionable of a part

// toolEvent is a data part about a call of a tool.
type toolEvent struct {
	Type   string          `json:"type"` // tool-call, tool-result or tool-error
	ID     string          `json:"toolCallId"`
	Name   string          `json:"toolName"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Metadata json.RawMessage `json:"metadata"`
}

// readToolCall reads a data part as a call of a tool. It is not one where it lacks a member that the extension wants, or is
// larger than a call may be. A call without an outcome counts as failed: the task around it has ended.
func (a *Agent) readToolCall(encoded []byte) (normalized.Part, bool) {
	var event toolEvent
	if json.Unmarshal(encoded, &event) != nil || !usableID(event.ID, false) || !usableID(event.Name, false) {
		return normalized.Part{}, false
	}

	part := normalized.Part{Kind: normalized.PartToolCall, ID: event.ID, Name: event.Name, Args: event.Input, Metadata: event.Metadata}
	switch event.Type {
	case "tool-result":
		if part.Result = event.Output; !part.Ended() {
			part.Result = json.RawMessage(`{}`)
		}
	case "tool-error":
		part.Error = &normalized.ToolError{Message: "The tool failed."}
		if event.Error != nil && usableID(event.Error.Message, false) {
			part.Error.Message = orElse(event.Error.Message, part.Error.Message)
		}
	case "tool-call":
		part.Error = &normalized.ToolError{Message: "The call did not end."}
	default:
		return part, false
	}

	most := a.options.Limits.ToolJSON
	if most == 0 {
		most = normalized.DefaultLimits().ToolJSON
	}
	return part, len(part.Args) <= most && len(part.Result) <= most && len(part.Metadata) <= most
}

// citationIn reads where a part comes from; nil where it does not say so.
func citationIn(metadata map[string]any) *normalized.Citation {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	given, is := mentionable[citationKey].(map[string]any)
	if !is {
		return nil
	}
	citation, ok := normalized.CitationOf(given)
	if !ok {
		return nil
	}
	return &citation
}

// withCall adds a call of a tool; one that is told again replaces what was told before.
func withCall(list []normalized.Part, call normalized.Part) []normalized.Part {
	for i := range list {
		if list[i].Kind == normalized.PartToolCall && list[i].ID == call.ID {
			list[i] = call
			return list
		}
	}
	return append(list, call)
}

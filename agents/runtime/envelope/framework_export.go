package envelope

import (
	"maps"
	"strings"

	"inbox/agents/runtime/value"
)

// Export turns an envelope into a message of the older agent framework. What Import made becomes the same message
// again; other envelopes get the nearest type, and those without any become an assistant message that holds the whole
// envelope in metadata.envelope. The agent key, if not empty, is given to messages of the execution trace that have
// none, since the framework demands one there.
func Export(e Envelope, agentKey string) map[string]any {
	mark, _ := e.Metadata[marker].(map[string]any)
	kind := FrameworkType(value.Text(mark["type"]))
	if kind.Known() {
		return restored(e, kind, mark)
	}
	message := foreign(e)
	if agentKey != "" && ExecutionTrace.Has(FrameworkType(value.Text(message["type"]))) {
		message["agent_key"] = agentKey
	}
	return message
}

func restored(e Envelope, kind FrameworkType, mark map[string]any) map[string]any {
	message := map[string]any{}
	if fields, is := mark["fields"].(map[string]any); is {
		maps.Copy(message, fields)
	}
	message["type"] = string(kind)
	with(message, mark, "agent_key", "content")
	if _, kept := mark["content"]; !kept && kind != Action {
		message["content"] = e.Content
	}
	missing(message, "timestamp", e.CreatedAt, e.CreatedAt != "")
	own := maps.Clone(e.Metadata)
	delete(own, marker)
	missing(message, "metadata", own, len(own) > 0)
	switch kind {
	case Action:
		for name, source := range map[string]string{"tool": "tool_name", "args": "parameters"} {
			member, there := e.Payload[source]
			missing(message, name, member, there)
		}
	case Synthesis:
		with(message, e.Payload, synthesisMembers...)
	}
	return message
}

// missing sets a member that the fields did not bring already.
func missing(message map[string]any, name string, member any, there bool) {
	if _, taken := message[name]; there && !taken {
		message[name] = member
	}
}

// foreign gives the nearest message for an envelope that did not come from the framework.
func foreign(e Envelope) map[string]any {
	message := map[string]any{}
	if len(e.Metadata) > 0 {
		message["metadata"] = e.Metadata
	}
	if e.CreatedAt != "" {
		message["timestamp"] = isoTime(e.CreatedAt)
	}
	kind, content := nearest(e)
	message["type"] = string(kind)
	switch {
	case kind == Action:
		message["tool"], message["args"] = e.ToolName(), value.Assoc(e.Payload["parameters"])
		return message
	case kind == Synthesis:
		with(message, e.Payload, synthesisMembers...)
	case kind == AssistantMessage && e.Type != TypeText:
		message["metadata"] = map[string]any{"envelope": e.Value()}
	}
	message["content"] = content
	return message
}

func nearest(e Envelope) (FrameworkType, any) {
	switch e.Type {
	case TypeText:
		return speaker(e.Role), e.Content
	case TypeToolCall:
		return Action, nil
	case TypeToolResult:
		if failedResult(e) {
			return Failure, failure(e)
		}
		return Observation, observed(e)
	case TypeError:
		return Failure, failure(e)
	case TypeFinalResult:
		if value.Flag(e.Payload["synthesis"]) {
			return Synthesis, e.Content
		}
		return Final, final(e)
	default:
		return AssistantMessage, e.Content
	}
}

func speaker(role string) FrameworkType {
	switch role {
	case "user":
		return UserMessage
	case "system":
		return InjectedContext
	}
	return AssistantMessage
}

func failedResult(e Envelope) bool {
	if success, said := e.Payload["success"].(bool); said {
		return !success
	}
	return e.Payload["error"] != nil
}

// observed gives what the tool gave: the payload's result, else the content, read as JSON if it is some.
func observed(e Envelope) any {
	if result, there := e.Payload["result"]; there && result != nil {
		return result
	}
	if inner, err := value.Decode([]byte(e.Text()), value.Limits{}); err == nil && value.Container(inner) {
		return inner
	}
	return e.Content
}

func failure(e Envelope) map[string]any {
	content := with(map[string]any{}, e.Payload, "error_type", "tool")
	with(content, e.Metadata, "error_type")
	for _, candidate := range []any{e.Payload["error_message"], e.Payload["error"], e.Content} {
		if text, is := value.NonBlank(candidate); is {
			content["error_message"] = text
			break
		}
	}
	if content["error_message"] == nil {
		content["error_message"] = value.EncodeText(e.Content)
	}
	if name := e.ToolName(); name != "" && content["tool"] == nil {
		content["tool"] = name
	}
	return content
}

func final(e Envelope) map[string]any {
	content := map[string]any{
		"operation": "display_message", "payload": map[string]any{"message": e.Content}, "human_readable_summary": e.Content,
	}
	return with(content, e.Payload, "operation", "payload", "human_readable_summary")
}

// isoTime brings the dates of older stores, with a space in the middle, into ISO form. A zone is not invented.
func isoTime(date string) string {
	if len(date) > 10 && date[10] == ' ' && validTimestamp(date[:10]+"T"+date[11:]) {
		return strings.Replace(date, " ", "T", 1)
	}
	return date
}

package envelope

import (
	"maps"

	"inbox/agents/runtime/value"
)

// Import turns a message of the older agent framework into an envelope. Nothing is lost: Export gives the same message
// back, unknown members and odd values included. Only the type must be known and content be there (an action has
// none); ValidateFramework judges the rest. Errors are of type *Error with code CodeFramework and a path.
func Import(given any) (Envelope, error) {
	message, is := given.(map[string]any)
	if !is {
		return Envelope{}, odd("message", "must be an object")
	}
	kind := FrameworkType(value.Text(message["type"]))
	if !kind.Known() {
		return Envelope{}, odd("type", "is not known")
	}
	content, there := message["content"]
	if !there && kind != Action {
		return Envelope{}, odd("content", "is required")
	}
	if !value.Writable(message, 1) {
		return Envelope{}, odd("message", "must be JSON serializable")
	}
	target := places[kind]
	return Envelope{
		Type: target.kind, Role: target.role, Content: shown(kind, content), Payload: payload(kind, message),
		Metadata: marked(kind, message), CreatedAt: value.Text(message["timestamp"]),
	}, nil
}

func odd(path, reason string) error { return &Error{Code: CodeFramework, Path: path, Reason: reason} }

// shown gives the text that a reader of the envelope sees: a plain string, the summary of an object, else its JSON.
func shown(kind FrameworkType, content any) string {
	if kind == Action || content == nil {
		return ""
	}
	if text, is := content.(string); is {
		return text
	}
	summary := "human_readable_summary"
	if kind == Failure {
		summary = "error_message"
	}
	object, _ := content.(map[string]any)
	if text := value.Text(object[summary]); text != "" {
		return text
	}
	return value.EncodeText(content)
}

// payload gives what the runtime understands of a message (the table of section 8).
func payload(kind FrameworkType, message map[string]any) map[string]any {
	content := message["content"]
	switch kind {
	case Task:
		return with(map[string]any{"task": content}, message, "agent_key")
	case Action:
		call := map[string]any{"turn": 0}
		if name := value.Text(message["tool"]); name != "" {
			call["tool_name"] = name
		}
		if parameters, is := message["args"].(map[string]any); is {
			call["parameters"] = parameters
		}
		return call
	case Observation:
		return map[string]any{"success": true, "result": content}
	case Failure:
		return with(map[string]any{"error_message": shown(kind, content)}, content, "error_type", "tool")
	case Final:
		return with(map[string]any{}, content, "operation", "payload", "human_readable_summary")
	case Synthesis:
		return with(map[string]any{"synthesis": true}, message, synthesisMembers...)
	case StrategicPlan:
		return with(map[string]any{}, content, "refined_intent", "plan")
	case SuggestedPlan:
		return with(map[string]any{}, content, "steps")
	case ScriptPlan:
		return map[string]any{"script": content}
	case DirectorContext, InjectedContext:
		return map[string]any{"context": content}
	case Delegation:
		given := map[string]any{"task": content}
		if delegate, there := message["agent_key"]; there {
			given["delegate_to"] = delegate
		}
		return given
	}
	return map[string]any{}
}

// with copies the named members that are there.
func with(to map[string]any, from any, names ...string) map[string]any {
	object, _ := from.(map[string]any)
	for _, name := range names {
		if member, there := object[name]; there {
			to[name] = member
		}
	}
	return to
}

// marked gives the message's own metadata with the marker, which keeps what no other member of the envelope can carry.
func marked(kind FrameworkType, message map[string]any) map[string]any {
	mark := map[string]any{"type": string(kind)}
	if key, there := message["agent_key"]; there {
		mark["agent_key"] = key
	}
	content, there := message["content"]
	if _, plain := content.(string); there && (!plain || kind == Action) {
		mark["content"] = content
	}
	fields := map[string]any{}
	for name, member := range message {
		if !carried(kind, name, member) {
			fields[name] = member
		}
	}
	if len(fields) > 0 {
		mark["fields"] = fields
	}
	own, _ := message["metadata"].(map[string]any)
	metadata := value.Filled(maps.Clone(own))
	metadata[marker] = mark
	return metadata
}

// carried tells whether a member has a place of its own in the envelope from which Export can write it again.
func carried(kind FrameworkType, name string, member any) bool {
	switch name {
	case "type", "agent_key", "content":
		return true
	case "timestamp":
		return value.Text(member) != ""
	case "metadata":
		object, _ := member.(map[string]any)
		_, taken := object[marker]
		return len(object) > 0 && !taken
	case "tool":
		return kind == Action && value.Text(member) != ""
	case "args":
		_, object := member.(map[string]any)
		return kind == Action && object
	case "phase_id", "from_manager", "is_global":
		return kind == Synthesis
	}
	return false
}

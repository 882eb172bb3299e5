package envelope

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"inbox/agents/runtime/value"
)

// Import turns a message of the older agent framework into an envelope. Nothing is lost: Export returns the same message
// back, unknown members and odd values included. Only the type must be known and content be there (an action has
// none); ValidateFramework judges the rest. Errors are of type *Error with code CodeFramework and a path.
func Import(given any) (Envelope, error) {
	message, is := given.(map[string]any)
	if !is {
		return Envelope{}, odd("message", "must be an object")
	}

	kind := FrameworkType(value.Text(message["type"]))
	if !kind.Known() {
		return Envelope{}, unheard()
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

// shown returns the text that a reader of the envelope sees: a plain string, the summary of an object, else its JSON.
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

// payload returns what the runtime understands of a message (the table of section 8).
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

// marked returns the message's own metadata with the marker, which keeps what no other member of the envelope can carry.
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

// carried reports whether a member has a place of its own in the envelope from which Export can write it again.
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

// ReadMany reads a kept conversation, whose messages are canonical envelopes or messages of the framework. An observation of
// the framework says nowhere which tool gave it, so it takes the name from the oldest unanswered action of the same agent;
// calls and results then stand in pairs. Errors name the message's position.
func ReadMany(given any) ([]Envelope, error) {
	list, is := value.List(given)
	if !is {
		return nil, odd("messages", "must be a list")
	}

	envelopes := make([]Envelope, 0, len(list))
	open := map[string][]string{} // names of called tools by agent
	for i, item := range list {
		if Typed(item) {
			e, err := Normalize(item)
			if err != nil {
				return nil, at(i, err)
			}
			envelopes = append(envelopes, e)
			continue
		}

		e, err := Import(item)
		if err != nil {
			return nil, at(i, err)
		}

		agent := value.Text(value.Assoc(item)["agent_key"])
		switch {
		case e.Type == TypeToolCall:
			open[agent] = append(open[agent], e.ToolName())
		case (e.Type == TypeToolResult || e.Type == TypeError) && len(open[agent]) > 0:
			if e.Type == TypeToolResult && open[agent][0] != "" {
				e.Payload["tool_name"] = open[agent][0]
			}
			open[agent] = open[agent][1:]
		}

		envelopes = append(envelopes, e)
	}

	return envelopes, nil
}

func at(i int, err error) error {
	problem, is := errors.AsType[*Error](err)
	if !is {
		return err
	}

	path := fmt.Sprintf("messages[%d]", i)
	if member := problem.Member(); member != "" {
		path += "." + member
	}
	return &Error{Code: problem.Code, Path: path, Reason: problem.Reason}
}

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
	if agentKey != "" && message["agent_key"] == nil && ExecutionTrace.Has(FrameworkType(value.Text(message["type"]))) {
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

// foreign returns the nearest message for an envelope that did not come from the framework.
func foreign(e Envelope) map[string]any {
	about := About{Metadata: e.Metadata, Timestamp: isoTime(e.CreatedAt)}
	switch e.Type {
	case TypeText:
		switch e.Role {
		case "user":
			return asked(e, about)
		case "system":
			return framed(InjectedContext, e.Content, about)
		}
		return NewAssistantMessage(e.Content, about)
	case TypeToolCall:
		return NewAction(e.ToolName(), value.Assoc(e.Payload["parameters"]), about)
	case TypeToolResult:
		if failedResult(e) {
			return NewError(failure(e), about)
		}
		return NewObservation(observed(e), about)
	case TypeError:
		return NewError(failure(e), about)
	case TypeFinalResult:
		if value.Flag(e.Payload["synthesis"]) {
			return with(framed(Synthesis, e.Content, about), e.Payload, synthesisMembers...)
		}
		return NewFinal(final(e), about)
	}

	about.Metadata = map[string]any{"envelope": e.Value()}
	return NewAssistantMessage(e.Content, about)
}

// asked is what a user said: a task where the payload says that it is one, else a message.
func asked(e Envelope, about About) map[string]any {
	task := e.Payload["task"]
	_, text := task.(string)
	if !text && !value.Container(task) {
		return NewUserMessage(e.Content, about)
	}
	about.AgentKey, _ = value.NonBlank(e.Payload["agent_key"])
	return NewTask(task, about)
}

func failedResult(e Envelope) bool {
	if success, said := e.Payload["success"].(bool); said {
		return !success
	}
	return e.Payload["error"] != nil
}

// observed returns what the tool gave: the payload's result, else the content, read as JSON if it is some.
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

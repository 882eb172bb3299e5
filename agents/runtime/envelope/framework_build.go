package envelope

import "inbox/agents/runtime/value"

// About is what a message of the older framework may say beside its content. Zero members are left out.
type About struct {
	AgentKey  string // whom the message is of or for; the execution trace needs one
	Timestamp string // ISO 8601
	Metadata  map[string]any
}

// NewUserMessage builds what a user said.
func NewUserMessage(content any, about About) map[string]any {
	return framed(UserMessage, content, about)
}

// NewAssistantMessage builds what the assistant answered.
func NewAssistantMessage(content any, about About) map[string]any {
	return framed(AssistantMessage, content, about)
}

// NewTask builds the assignment of a task to the agent of about.AgentKey.
func NewTask(content any, about About) map[string]any { return framed(Task, content, about) }

// NewAction builds the request for a call of a tool, which has no content.
func NewAction(toolName string, args map[string]any, about About) map[string]any {
	message := framed(Action, nil, about)
	delete(message, "content")
	message["tool"], message["args"] = toolName, value.Filled(args)
	return message
}

// NewObservation builds what a tool gave.
func NewObservation(content any, about About) map[string]any {
	return framed(Observation, content, about)
}

// NewError builds a failure. The framework's rules want error_message in its content; error_type and tool are usual.
func NewError(content map[string]any, about About) map[string]any {
	return framed(Failure, content, about)
}

// NewFinal builds the end of a task. The framework's rules want operation in its content.
func NewFinal(content map[string]any, about About) map[string]any {
	return framed(Final, content, about)
}

// framed builds a message of any type of the framework.
func framed(kind FrameworkType, content any, about About) map[string]any {
	message := map[string]any{"type": string(kind), "content": content}
	if about.AgentKey != "" {
		message["agent_key"] = about.AgentKey
	}
	if about.Timestamp != "" {
		message["timestamp"] = about.Timestamp
	}
	if len(about.Metadata) > 0 {
		message["metadata"] = about.Metadata
	}
	return message
}

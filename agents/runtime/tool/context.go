package tool

import "inbox/agents/runtime/value"

// reserved are the members of a client_context with which a caller could bring its own tools; they never come from
// outside (agent runtime contract, section 6.1).
var reserved = []string{
	"runtime_tools", "runtime_tool_declarations", "tool_declarations", "runtime_tool_callback", "runtime_tool_timeout",
}

// PublicContext copies a client_context from outside without the members that only the server may set.
func PublicContext(clientContext map[string]any) map[string]any {
	visible := make(map[string]any, len(clientContext))
	for key, given := range clientContext {
		visible[key] = value.Clone(given)
	}
	for _, member := range reserved {
		delete(visible, member)
	}
	return visible
}

package tool

import (
	"strings"

	"inbox/agents/runtime/value"
)

// RuntimePolicySchema is the schema of a RuntimePolicy.
const RuntimePolicySchema = "agents-api/runtime-tool-policy/v1"

const (
	runtimeLocal = "runtime_local"
	controlPlane = "control_plane"
)

// RuntimePolicy says for every tool whether a delegated runtime may have it: only if both its environment and its
// capability scope are runtime_local. Scalars of the context go along (agent runtime contract, section 4.8).
func RuntimePolicy(tools []Entry, context map[string]any) map[string]any {
	entries := []any{}
	for _, tool := range namedTools(tools) {
		if entry := runtimeEntry(tool); entry != nil {
			entries = append(entries, entry)
		}
	}

	policy := map[string]any{"schema": RuntimePolicySchema, "version": 1, "tools": entries}
	if len(context) > 0 {
		policy["context"] = scalars(context)
	}
	return policy
}

func runtimeEntry(tool namedTool) map[string]any {
	id, named := value.NonBlank(tool.fields["name"])
	if !named {
		id = value.Trim(tool.name)
	}
	if id == "" {
		return nil
	}

	environment := runtimeWord(tool.fields, "environment")
	scope := runtimeWord(tool.fields, "capability_scope")
	entry := map[string]any{
		"id": id, "runtime_tool_id": runtimeToolID(id, tool.fields),
		"allowed":     environment == runtimeLocal && scope == runtimeLocal,
		"environment": environment, "capability_scope": scope,
		"runtime":              map[string]any{"environment": environment, "capability_scope": scope},
		"execution_location":   sandboxOrParent(environment),
		"transport_visibility": sandboxOrParent(scope),
		"legacy_fields":        []any{"execution_location", "transport_visibility"},
	}

	if source := value.Text(tool.fields["source"]); source != "" {
		entry["source"] = source
	}

	return entry
}

func runtimeWord(tool map[string]any, name string) string {
	if word, ok := value.NonBlank(value.Members(tool["runtime"])[name]); ok {
		return word
	}
	return controlPlane
}

func runtimeToolID(id string, tool map[string]any) string {
	if own, ok := value.NonBlank(tool["runtime_tool_id"]); ok {
		return own
	}
	return strings.NewReplacer("/", "_", "-", "_").Replace(id)
}

func sandboxOrParent(word string) string {
	if word == runtimeLocal {
		return "sandbox"
	}
	return "parent"
}

func scalars(context map[string]any) map[string]any {
	kept := map[string]any{}
	for name, given := range context {
		_, text := given.(string)
		_, flag := given.(bool)
		if name != "" && (text || flag || value.Number(given)) {
			kept[name] = given
		}
	}
	return kept
}

package tool

import (
	"slices"

	"inbox/agents/runtime/value"
)

// VisibilityOptions are the parts of the visibility policy that are no JSON. All may be nil.
type VisibilityOptions struct {
	// Access says whether a tool may be seen at all; with ResolveAction it hides what the sender may not use.
	Access func(name string, tool map[string]any) bool
	// Providers are more policies, after those of the context; nil is none.
	Providers []func(context map[string]any) map[string]any
	// WriteCategories replace write, publishing, mutating and destructive.
	WriteCategories []string
}

var writeCategories = []string{"write", "publishing", "mutating", "destructive"}

// Visible gives the names of the tools that the model sees, in order, by the eight steps of the agent runtime contract,
// section 4.8. The context holds tool_policy, agent_config, mode, categories, allow_only, runtime_tools,
// runtime_categories, allow_write_tools, deny and principal. An explicit deny beats everything.
func Visible(tools []Entry, context map[string]any, options VisibilityOptions) []string {
	policy := newVisibility(context, options)
	seen := namedTools(tools)
	seen = policy.byMode(seen)
	if options.Access != nil {
		seen = keep(seen, func(tool namedTool) bool { return options.Access(tool.name, tool.fields) })
	}
	for _, named := range policy.policies {
		seen = policy.byNamedPolicy(seen, named)
	}
	if wanted := value.Names(context["categories"]); len(wanted) > 0 {
		seen = keep(seen, func(tool namedTool) bool { return policy.mandatory(tool) || inCategories(tool.fields, wanted) })
	}
	if len(policy.allowOnly) > 0 {
		seen = policy.mandatoryFirst(seen, func(tool namedTool) bool { return slices.Contains(policy.allowOnly, tool.name) })
	}
	seen = keep(seen, func(tool namedTool) bool { return !isRuntimeTool(tool.fields) || policy.optedIn(tool) })
	if autonomous(context) && !policy.allowWrite {
		seen = keep(seen, func(tool namedTool) bool { return !policy.writes(tool.fields) || policy.optedIn(tool) })
	}
	seen = keep(seen, func(tool namedTool) bool { return !slices.Contains(policy.deny, tool.name) })
	names := make([]string, len(seen))
	for index, tool := range seen {
		names[index] = tool.name
	}
	return names
}

// Entries gives the set as Visible takes it.
func (s Declarations) Entries() []Entry {
	entries := make([]Entry, len(s.names))
	for index, name := range s.names {
		entries[index] = Entry{Name: name, Value: s.byName[name].Object()}
	}
	return entries
}

type namedTool struct {
	name   string
	fields map[string]any
}

// namedTools takes the name of a tool in a list from its declaration. The later of two with the same name counts.
func namedTools(entries []Entry) []namedTool {
	tools := make([]namedTool, 0, len(entries))
	places := make(map[string]int, len(entries))
	for _, entry := range entries {
		if !value.PlainContainer(entry.Value) {
			continue
		}
		tool := namedTool{entry.Name, value.Members(entry.Value)}
		if tool.name == "" {
			tool.name = value.Text(tool.fields["name"])
		}
		if place, known := places[tool.name]; known {
			tools[place] = tool
			continue
		}
		places[tool.name] = len(tools)
		tools = append(tools, tool)
	}
	return tools
}

func keep(tools []namedTool, wanted func(namedTool) bool) []namedTool {
	kept := make([]namedTool, 0, len(tools))
	for _, tool := range tools {
		if wanted(tool) {
			kept = append(kept, tool)
		}
	}
	return kept
}

func isRuntimeTool(tool map[string]any) bool {
	return value.Flag(tool["runtime_tool"]) || tool["executor"] == ExecutorClient
}

// autonomous tells whether nobody stands behind the run who could be asked: no principal, user 0, or a machine.
func autonomous(context map[string]any) bool {
	who := context
	if principal, ok := context["principal"].(map[string]any); ok && saysWho(principal) {
		who = principal
	}
	if !saysWho(who) || value.LeadingInteger(who["acting_user_id"]) <= 0 {
		return true
	}
	return slices.Contains([]string{"system", "runtime", "agent_token"}, value.Scalar(who["auth_source"]))
}

func saysWho(object map[string]any) bool {
	_, source := object["auth_source"]
	_, user := object["acting_user_id"]
	return source || user
}

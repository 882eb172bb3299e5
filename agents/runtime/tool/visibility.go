package tool

import (
	"slices"

	"inbox/agents/runtime/value"
)

// writeCategories are those of tools that write.
var writeCategories = []string{"write", "publishing", "mutating", "destructive"}

// Visible returns the names of the tools that the model sees, in order, by the steps of the agent runtime contract,
// section 4.8. The context holds tool_policy, agent_config, mode, categories, allow_only, runtime_tools,
// runtime_categories, allow_write_tools, deny and principal. An explicit deny beats everything.
func Visible(tools []Entry, context map[string]any) []string {
	policy := newVisibility(context)
	seen := namedTools(tools)
	seen = policy.byMode(seen)
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

// Entries returns the set as Visible takes it.
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

// autonomous reports whether no person stands behind the run who could be asked: no principal, user 0, or a machine.
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

// visibility is the union of all policies of a context.
type visibility struct {
	mode                string
	policies            []map[string]any
	mandatoryTools      []string
	mandatoryCategories []string
	allowOnly           []string
	optedTools          []string
	optedCategories     []string
	deny                []string
	allowWrite          bool
}

func newVisibility(context map[string]any) *visibility {
	policies := collectPolicies(context)
	union := func(name string) []string { return policyTexts(policies, name) }
	v := &visibility{
		mode: "chat", policies: policies,
		mandatoryTools: union("mandatory_tools"), mandatoryCategories: union("mandatory_categories"),
		allowOnly:  append(value.Names(context["allow_only"]), union("allow_only")...),
		deny:       append(value.Names(context["deny"]), union("deny")...),
		allowWrite: value.Flag(context["allow_write_tools"]),
	}

	if context["mode"] != nil {
		v.mode = value.Scalar(context["mode"])
	}

	v.optedTools = slices.Concat(v.allowOnly, v.mandatoryTools, value.Names(context["runtime_tools"]), union("runtime_tools"))
	v.optedCategories = slices.Concat(v.mandatoryCategories, value.Names(context["runtime_categories"]), union("runtime_categories"))

	for _, policy := range policies {
		v.allowWrite = v.allowWrite || value.Flag(policy["allow_write_tools"])
		if policyMode(policy) == "allow" {
			v.optedTools = append(v.optedTools, value.Names(policy["tools"])...)
			v.optedCategories = append(v.optedCategories, value.Names(policy["categories"])...)
		}
	}

	return v
}

// collectPolicies keeps the order of the contract: the agent's, the context's.
func collectPolicies(context map[string]any) []map[string]any {
	var policies []map[string]any
	add := func(policy any) {
		if value.PlainContainer(policy) {
			policies = append(policies, value.Members(policy))
		}
	}

	add(value.Members(context["agent_config"])["tool_policy"])
	add(context["tool_policy"])
	return policies
}

func policyTexts(policies []map[string]any, name string) []string {
	var found []string
	for _, policy := range policies {
		found = append(found, value.Names(policy[name])...)
	}
	return found
}

func policyMode(policy map[string]any) string {
	if policy["mode"] == nil {
		return "deny"
	}
	return value.Scalar(policy["mode"])
}

func (v *visibility) mandatory(tool namedTool) bool {
	return value.Flag(tool.fields["mandatory"]) || slices.Contains(v.mandatoryTools, tool.name) ||
		inCategories(tool.fields, v.mandatoryCategories)
}

func (v *visibility) optedIn(tool namedTool) bool {
	return slices.Contains(v.optedTools, tool.name) || inCategories(tool.fields, v.optedCategories) || v.mandatory(tool)
}

func (v *visibility) writes(tool map[string]any) bool {
	return len(writeCategories) > 0 &&
		(value.Flag(tool["write"]) || value.Flag(tool["mutating"]) || inCategories(tool, writeCategories))
}

// byMode is step 1.
func (v *visibility) byMode(tools []namedTool) []namedTool {
	if v.mode == "" {
		return tools
	}
	return keep(tools, func(tool namedTool) bool {
		modes := tool.fields["modes"]
		if modes == nil {
			modes = tool.fields["mode"]
		}
		return modes == nil || hasMode(modes, v.mode)
	})
}

// byNamedPolicy is step 2.
func (v *visibility) byNamedPolicy(tools []namedTool, policy map[string]any) []namedTool {
	mode, names, wanted := policyMode(policy), value.Names(policy["tools"]), value.Names(policy["categories"])
	if mode != "allow" && mode != "deny" {
		return tools
	}
	if mode == "deny" && len(names) == 0 && len(wanted) == 0 {
		return tools
	}

	return v.mandatoryFirst(tools, func(tool namedTool) bool {
		listed := slices.Contains(names, tool.name) || inCategories(tool.fields, wanted)
		return listed == (mode == "allow")
	})
}

// mandatoryFirst keeps mandatory tools and the wanted ones, the mandatory in front.
func (v *visibility) mandatoryFirst(tools []namedTool, wanted func(namedTool) bool) []namedTool {
	first := keep(tools, v.mandatory)
	rest := keep(tools, func(tool namedTool) bool { return !v.mandatory(tool) && wanted(tool) })
	return append(first, rest...)
}

func hasMode(modes any, mode string) bool {
	items := []any{modes}
	if value.PlainContainer(modes) {
		items = value.Elements(modes)
	}
	return slices.Contains(items, any(mode))
}

// categories collects what a tool says of its kind, under all four names in use.
func categories(tool map[string]any) []string {
	var found []string
	for _, name := range []string{"category", "ability_category"} {
		if category, ok := value.NonBlank(tool[name]); ok {
			found = append(found, category)
		}
	}

	for _, name := range []string{"categories", "ability_categories"} {
		if value.PlainContainer(tool[name]) {
			found = append(found, value.Names(tool[name])...)
		}
	}
	return found
}

func inCategories(tool map[string]any, wanted []string) bool {
	if len(wanted) == 0 {
		return false
	}
	return slices.ContainsFunc(categories(tool), func(category string) bool { return slices.Contains(wanted, category) })
}

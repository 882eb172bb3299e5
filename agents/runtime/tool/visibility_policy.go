package tool

import (
	"slices"

	"inbox/agents/runtime/value"
)

// visibility is the union of all policies of a context.
type visibility struct {
	mode                string
	policies            []map[string]any
	mandatoryTools      []string
	mandatoryCategories []string
	allowOnly           []string
	optedTools          []string
	optedCategories     []string
	writeCategories     []string
	deny                []string
	allowWrite          bool
}

func newVisibility(context map[string]any, options VisibilityOptions) *visibility {
	policies := collectPolicies(context, options)
	union := func(name string) []string { return policyTexts(policies, name) }
	v := &visibility{
		mode: "chat", policies: policies,
		mandatoryTools: union("mandatory_tools"), mandatoryCategories: union("mandatory_categories"),
		allowOnly:       append(value.Names(context["allow_only"]), union("allow_only")...),
		deny:            append(value.Names(context["deny"]), union("deny")...),
		writeCategories: writeCategories,
		allowWrite:      value.Flag(context["allow_write_tools"]),
	}
	if context["mode"] != nil {
		v.mode = value.Scalar(context["mode"])
	}
	if options.WriteCategories != nil {
		v.writeCategories = options.WriteCategories
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

// collectPolicies keeps the order of the contract: the agent's, the context's, the providers'.
func collectPolicies(context map[string]any, options VisibilityOptions) []map[string]any {
	var policies []map[string]any
	add := func(policy any) {
		if value.PlainContainer(policy) {
			policies = append(policies, value.Members(policy))
		}
	}
	add(value.Members(context["agent_config"])["tool_policy"])
	add(context["tool_policy"])
	for _, provider := range options.Providers {
		if policy := provider(context); policy != nil {
			add(policy)
		}
	}
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
	return len(v.writeCategories) > 0 &&
		(value.Flag(tool["write"]) || value.Flag(tool["mutating"]) || inCategories(tool, v.writeCategories))
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

// byNamedPolicy is step 3.
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

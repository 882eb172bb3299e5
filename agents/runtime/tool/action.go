package tool

import (
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// What happens when a model calls a tool (agent runtime contract, section 4.9).
const (
	ActionDirect    = "direct"    // it runs
	ActionPreview   = "preview"   // it becomes a pending action that someone approves
	ActionForbidden = "forbidden" // it is refused
)

// ActionPolicy reads an action policy: ActionDirect, ActionPreview, ActionForbidden, or "" for anything else.
func ActionPolicy(given any) string {
	policy := strings.ToLower(value.Trim(value.Text(given)))
	if policy == ActionDirect || policy == ActionPreview || policy == ActionForbidden {
		return policy
	}
	return ""
}

// Purpose is what the sender must be permitted to use a tool: "tool:<name>".
func Purpose(name string) string { return "tool:" + name }

// ResolveAction says what happens with a call. The context holds tool_name, mode (default chat), tool_def, deny,
// action_policy {tools, categories} and agent_config (agent runtime contract, section 4.9). The categories are read in the order of
// []Entry if they are given so; an object has no order, and there the strictest matching category counts. Permits reports whether
// the verified identity of the sender allows a purpose, "tool:<name>"; nil allows all. It is asked last: what is not permitted is
// forbidden, unless the policy says preview, for then someone else approves.
func ResolveAction(context map[string]any, permits func(purpose string) bool) string {
	name := value.Scalar(context["tool_name"])
	if name == "" {
		return ActionDirect
	}

	mode := "chat"
	if context["mode"] != nil {
		mode = value.Scalar(context["mode"])
	}

	policy := decideAction(name, mode, context)
	if permits != nil && policy != ActionPreview && !permits(Purpose(name)) {
		return ActionForbidden
	}

	return policy
}

func decideAction(name, mode string, context map[string]any) string {
	if slices.Contains(value.Names(context["deny"]), name) {
		return ActionForbidden
	}

	definition := value.Members(context["tool_def"])
	agent := agentActionPolicy(context)
	if policy := ActionPolicy(value.Members(agent["tools"])[name]); policy != "" {
		return policy
	}
	if policy := categoryAction(agent["categories"], definition); policy != "" {
		return policy
	}

	return declaredAction(definition, mode)
}

func declaredAction(definition map[string]any, mode string) string {
	if policy := ActionPolicy(definition["action_policy"]); policy != "" {
		return policy
	}
	if policy := ActionPolicy(definition["action_policy_"+mode]); policy != "" {
		return policy
	}
	return ActionDirect
}

// agentActionPolicy is the context's own, else that of the agent's configuration.
func agentActionPolicy(context map[string]any) map[string]any {
	if value.PlainContainer(context["action_policy"]) {
		return value.Members(context["action_policy"])
	}
	return value.Members(value.Members(context["agent_config"])["action_policy"])
}

func categoryAction(given any, definition map[string]any) string {
	ordered, inTextOrder := given.([]Entry)
	if !inTextOrder {
		ordered = Entries(value.Members(given))
	}

	strictest := ""
	for _, entry := range ordered {
		policy := ActionPolicy(entry.Value)
		if policy == "" || !inCategories(definition, value.Names(entry.Name)) {
			continue
		}
		if inTextOrder {
			return policy
		}
		strictest = stricter(strictest, policy)
	}

	return strictest
}

func stricter(one, other string) string {
	for _, policy := range []string{ActionForbidden, ActionPreview, ActionDirect} {
		if one == policy || other == policy {
			return policy
		}
	}
	return ""
}

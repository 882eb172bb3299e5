package tool

import (
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// What happens when a model calls a tool (agent runtime contract, section 4.9).
const (
	ActionDirect    = "direct"    // it runs
	ActionPreview   = "preview"   // it becomes a pending action that somebody approves
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

// ActionOptions are the parts of the action policy that are no JSON. All may be nil.
type ActionOptions struct {
	// Providers are asked in order after the agent's own policy; "" is no opinion.
	Providers []func(context map[string]any) string
	// Recall returns the policy that a person chose to remember; "" if none.
	Recall func(workspace map[string]any, user int64, agent, tool string) string
	// Final may change the decision; "" leaves it.
	Final func(policy, tool, mode string, context map[string]any) string
	// Permits reports whether the verified identity of the sender allows a purpose, "tool:<name>". It is asked last:
	// what is not permitted is forbidden, unless the policy says preview, for then somebody else approves.
	Permits func(purpose string) bool
}

// ResolveAction says what happens with a call. The context holds tool_name, mode (default chat), tool_def, deny,
// action_policy {tools, categories}, agent_config, and for remembered approvals workspace, user_id and agent_id (agent
// runtime contract, section 4.9). The categories are read in the order of []Entry if they are given so; an object has no
// order, and there the strictest matching category counts.
func ResolveAction(context map[string]any, options ActionOptions) string {
	name := value.Scalar(context["tool_name"])
	if name == "" {
		return ActionDirect
	}

	mode := "chat"
	if context["mode"] != nil {
		mode = value.Scalar(context["mode"])
	}

	policy := decideAction(name, mode, context, options)
	if options.Final != nil {
		if changed := ActionPolicy(options.Final(policy, name, mode, context)); changed != "" {
			policy = changed
		}
	}
	if options.Permits != nil && policy != ActionPreview && !options.Permits(Purpose(name)) {
		return ActionForbidden
	}

	return policy
}

func decideAction(name, mode string, context map[string]any, options ActionOptions) string {
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

	for _, provider := range options.Providers {
		if policy := ActionPolicy(provider(context)); policy != "" {
			return policy
		}
	}

	if policy := rememberedAction(name, context, options); policy != "" {
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

func rememberedAction(name string, context map[string]any, options ActionOptions) string {
	if options.Recall == nil {
		return ""
	}

	user := firstOf(context, "user_id", "acting_user_id")
	agent := firstOf(context, "agent_id", "agent_slug")
	workspace, ok := workspaceOf(context["workspace"])
	if !ok || value.LeadingInteger(user) <= 0 || value.Scalar(agent) == "" {
		return ""
	}
	return ActionPolicy(options.Recall(workspace, value.LeadingInteger(user), value.Scalar(agent), name))
}

func firstOf(object map[string]any, names ...string) any {
	for _, name := range names {
		if object[name] != nil {
			return object[name]
		}
	}
	return nil
}

// workspaceOf reads {workspace_type, workspace_id}; the type is a slug in lower case.
func workspaceOf(given any) (map[string]any, bool) {
	object := value.Members(given)
	kind := strings.ToLower(value.Trim(value.Scalar(object["workspace_type"])))
	id := value.Trim(value.Scalar(object["workspace_id"]))
	if !slugPattern.MatchString(kind) || id == "" {
		return nil, false
	}
	return map[string]any{"workspace_type": kind, "workspace_id": id}, true
}

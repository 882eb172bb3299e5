package llm

import (
	"path"

	"inbox/agents/runtime/tool"
	"inbox/identity"
	"inbox/internal/fault"
)

func (a Actions) validate() error {
	for _, policies := range []map[string]string{a.Tools, a.Categories} {
		for name, policy := range policies {
			if tool.ActionPolicy(policy) == "" {
				return fault.InField("actions."+name, `must be "direct", "preview" or "forbidden"`)
			}
		}
	}
	for pattern := range a.Tools {
		if _, err := path.Match(pattern, ""); err != nil {
			return fault.InField("actions."+pattern, "is no pattern")
		}
	}
	return nil
}

// strictness orders the policies: of several patterns that match, the strictest counts.
var strictness = map[string]int{tool.ActionDirect: 1, tool.ActionPreview: 2, tool.ActionForbidden: 3}

// of gives what the lists say about a tool; empty = nothing.
func (a Actions) of(name string) string {
	if policy := tool.ActionPolicy(a.Tools[name]); policy != "" {
		return policy
	}
	strictest := ""
	for pattern, word := range a.Tools {
		matched, _ := path.Match(pattern, name) // validate checked the pattern
		if policy := tool.ActionPolicy(word); matched && strictness[policy] > strictness[strictest] {
			strictest = policy
		}
	}
	return strictest
}

// action is what the operator's policy and the sender's rights say about a tool (agent runtime contract, section 4.9).
func (j *job) action(declaration *tool.Declaration) string {
	permits := j.turn.Permits
	if permits == nil {
		permits = func(string) bool { return false }
	}
	name := declaration.Name()
	return tool.ResolveAction(map[string]any{
		"tool_name": name, "tool_def": declaration.Object(),
		"action_policy": map[string]any{
			"tools":      map[string]any{name: j.agent.options.Actions.of(name)},
			"categories": anyMap(j.agent.options.Actions.Categories),
		},
	}, tool.ActionOptions{Permits: permits})
}

// visible gives the tools that the model sees (agent runtime contract, section 4.8), of those that the sender may use.
func (j *job) visible(allowed []*tool.Declaration) tool.Declarations {
	set := tool.NewDeclarations(allowed...)
	policy := j.agent.options.ToolPolicy
	if policy == nil {
		return set
	}
	names := tool.Visible(set.Entries(), map[string]any{
		"agent_config": map[string]any{"tool_policy": policy}, "principal": j.principal(),
	}, tool.VisibilityOptions{})
	seen := make([]*tool.Declaration, 0, len(names))
	for _, name := range names {
		if declaration, has := set.Get(name); has {
			seen = append(seen, declaration)
		}
	}
	return tool.NewDeclarations(seen...)
}

// principal says whether a person stands behind the message: programs, and senders who proved nothing, are autonomous.
func (j *job) principal() map[string]any {
	source, user := "agent_token", 0
	for i := range j.turn.Message.Sender.Identities {
		if j.turn.Message.Sender.Identities[i].Assurance != identity.AssuranceAgent {
			source, user = "user", 1
		}
	}
	if j.turn.Message.RecipientCapabilities.AgentChain != nil { // an agent asks, on whosever behalf
		source, user = "agent_token", 0
	}
	return map[string]any{"auth_source": source, "acting_user_id": user}
}

func anyMap(policies map[string]string) map[string]any {
	object := make(map[string]any, len(policies))
	for name, policy := range policies {
		object[name] = policy
	}
	return object
}

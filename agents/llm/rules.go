package llm

import (
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Rule holds a model to an order of its tools (agent runtime contract, section 3.7). Tools are named as they are declared. What the
// sender may not use is left out; a rule that could never be met then is left out, too.
type Rule struct {
	ID           string
	AfterTool    string   // the rule begins with the last call of this tool
	LimitedTools []string // of these MaxCalls calls are made, then only RequireOneOf
	MaxCalls     int
	RequireOneOf []string

	RequireToolUse bool // the model is done only after MinToolCalls calls of RequireOneOf, or of any tool if that is empty
	MinToolCalls   int

	FreeCalls      bool // calls are not held to the rule
	FreeCompletion bool // nor is the end of the run
}

func (r *Rule) validate() error {
	if r.MaxCalls < 0 || r.MinToolCalls < 0 {
		return fault.InField("tool_call_rules."+r.ID, "numbers must not be negative")
	}
	return nil
}

// rules are those of the agent in the form of the loop, with the names that the model uses.
func (j *job) rules() any {
	if len(j.agent.options.Rules) == 0 || j.tools.Len() == 0 {
		return nil
	}

	rules := []any{}
	for i := range j.agent.options.Rules {
		rule := &j.agent.options.Rules[i]
		required := j.offered(rule.RequireOneOf)
		if len(required) == 0 && len(rule.RequireOneOf) > 0 {
			continue
		}

		after := ""
		if names := j.offered([]string{rule.AfterTool}); len(names) > 0 {
			after = value.Text(names[0])
		}

		rules = append(rules, map[string]any{
			"id": rule.ID, "after_tool": after, "limited_tools": j.offered(rule.LimitedTools), "max_calls": rule.MaxCalls,
			"require_one_of": required, "require_tool_use": rule.RequireToolUse, "min_tool_calls": rule.MinToolCalls,
			"gate_calls": !rule.FreeCalls, "gate_completion": !rule.FreeCompletion,
		})
	}

	return rules
}

// offered returns the names that the model uses for those of the tools that it has.
func (j *job) offered(names []string) []any {
	list := []any{}
	for _, name := range names {
		if declaration, has := j.tools.Get(name); has {
			list = append(list, declaration.SafeName())
		}
	}
	return list
}

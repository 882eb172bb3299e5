package config

// ToolCallRule obliges a model to an order of its tools (agent runtime contract, section 3.7).
type ToolCallRule struct {
	// Name of the rule, which the model reads when it breaks it. Letters, digits, `_` and `-`.
	ID string `toml:"id" default:"tool-call-rule"`
	// The rule begins with the last call of this tool.
	AfterTool string `toml:"after_tool"`
	// Of these tools the model may make `max_calls` calls; then only those of `require_one_of`.
	LimitedTools []string `toml:"limited_tools"`
	// How many calls those are.
	MaxCalls int `toml:"max_calls"`
	// Tools of which one must be called after `after_tool`.
	RequireOneOf []string `toml:"require_one_of"`
	// Whether the model is done only after `min_tool_calls` calls of `require_one_of`, or of any tool if that is empty.
	RequireToolUse bool `toml:"require_tool_use"`
	// How many calls those are.
	MinToolCalls int `toml:"min_tool_calls"`
	// Whether the rule applies to calls.
	GateCalls bool `toml:"gate_calls"`
	// Whether it applies to the end of the run.
	GateCompletion bool `toml:"gate_completion"`
}

// setDefaults fills a table [[agents.llm.tool_call_rules]] before its keys are read.
func (r *ToolCallRule) setDefaults() {
	*r = ToolCallRule{MinToolCalls: 1, GateCalls: true, GateCompletion: true}
}

func (r *ToolCallRule) validate(p *problems, key string) {
	between(p, key+".max_calls", r.MaxCalls, 0, 10_000)
	between(p, key+".min_tool_calls", r.MinToolCalls, 1, 10_000)

	limits := len(r.LimitedTools) > 0 && r.MaxCalls > 0
	switch {
	case r.RequireToolUse && !r.GateCompletion:
		p.add(key, "decides nothing: require_tool_use is about the end of a run", "remove gate_completion = false")
	case r.RequireToolUse:
	case r.AfterTool == "" || len(r.RequireOneOf) == 0:
		p.add(key, "decides nothing", "write after_tool and require_one_of, or require_tool_use = true")
	case !r.GateCompletion && (!r.GateCalls || !limits):
		p.add(key, "decides nothing", "write limited_tools and max_calls with gate_calls, or remove gate_completion = false")
	}
}

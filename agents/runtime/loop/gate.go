package loop

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// rule is one normalized tool-call rule (agent runtime contract, section 3.7).
type rule struct {
	id             string
	afterTool      string
	limitedTools   []string
	maxCalls       int
	requireOneOf   []string
	requireToolUse bool
	minToolCalls   int
	gateCalls      bool
	gateCompletion bool
}

// gate holds a model to the rules of its operator: it decides from the transcript alone, before the mediator.
type gate []rule

// newGate reads tool_call_rules. Rules that could never decide anything are dropped.
func newGate(given any) gate {
	if !value.Container(given) {
		return nil
	}

	var rules gate
	for _, row := range entries(given) {
		raw, is := row.value.(map[string]any)
		if !is {
			continue
		}
		if r, active := newRule(raw, row.key); active {
			rules = append(rules, r)
		}
	}

	return rules
}

func newRule(raw map[string]any, key string) (rule, bool) {
	r := rule{
		id:             ruleID(raw["id"], key),
		afterTool:      value.Trim(value.Text(raw["after_tool"])),
		limitedTools:   value.Names(first(raw["limited_tools"], raw["limited_tool_names"])),
		maxCalls:       max(0, numeric(raw["max_calls"], 0)),
		requireOneOf:   value.Names(first(raw["require_one_of"], raw["then_require_one_of"])),
		requireToolUse: flag(raw["require_tool_use"], false),
		minToolCalls:   max(1, numeric(raw["min_tool_calls"], 1)),
		gateCompletion: flag(raw["gate_completion"], true),
	}

	anchored := r.afterTool != "" && len(r.requireOneOf) > 0
	bounded := r.afterTool != "" && len(r.limitedTools) > 0 && r.maxCalls > 0
	r.gateCalls = flag(raw["gate_calls"], true) && bounded
	if r.requireToolUse {
		return r, r.gateCompletion
	}

	return r, anchored && (r.gateCalls || r.gateCompletion)
}

var notOfRuleID = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func ruleID(given any, key string) string {
	text := "tool-call-rule-" + key
	if given != nil {
		text = value.Scalar(given)
	}
	if id := strings.Trim(notOfRuleID.ReplaceAllString(text, "-"), "-"); id != "" {
		return id
	}
	return "tool-call-rule"
}

// flag reads a boolean that may be written as text.
func flag(given any, fallback bool) bool {
	if given == nil {
		return fallback
	}
	if text, is := given.(string); is {
		return !slices.Contains([]string{"", "0", "false", "no", "off"}, strings.ToLower(value.Trim(text)))
	}
	return value.Truthy(given)
}

var numericText = regexp.MustCompile(`^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$`)

func numeric(given any, fallback int) int {
	switch text, isText := given.(string); {
	case given == nil:
		return fallback
	case isText && !numericText.MatchString(text), !isText && !value.Number(given):
		return 0
	}
	return value.Int32(given)
}

// verdict is a refusal of the gate: the text for the model and the facts behind it.
type verdict struct {
	reason  string
	context map[string]any
}

// checkCall decides about a call from the transcript before it. The last call of the anchor counts.
func (g gate) checkCall(toolName string, before []envelope.Envelope) *verdict {
	for i := range g {
		r := &g[i]
		if !r.gateCalls || slices.Contains(r.requireOneOf, toolName) {
			continue
		}

		calls := callsIn(before)
		anchor := lastIndex(calls, r.afterTool)
		if anchor < 0 || countOf(calls[anchor+1:], r.requireOneOf) > 0 {
			continue
		}
		if used := countOf(calls[anchor+1:], r.limitedTools); used >= r.maxCalls {
			return r.callVerdict(toolName, used)
		}
	}
	return nil
}

func (r *rule) callVerdict(toolName string, used int) *verdict {
	return &verdict{
		reason: fmt.Sprintf("TOOL CALL BLOCKED: after %s you have already used %d of %d permitted discovery tools. "+
			"Do not inspect further. Your next tool call must be one of: %s.",
			r.afterTool, used, r.maxCalls, strings.Join(r.requireOneOf, ", ")),
		context: map[string]any{
			"rule_id": r.id, "after_tool": r.afterTool, "limited_tools": value.Items(r.limitedTools), "limited_count": used,
			"max_calls": r.maxCalls, "require_one_of": value.Items(r.requireOneOf), "rejected_tool": toolName,
		},
	}
}

// checkCompletion decides whether a run may end with this transcript. The first call of the anchor counts.
func (g gate) checkCompletion(messages []envelope.Envelope) *verdict {
	for i := range g {
		r := &g[i]
		calls := callsIn(messages)
		switch {
		case !r.gateCompletion:
		case r.requireToolUse:
			if seen := r.qualifying(calls); seen < r.minToolCalls {
				return r.toolUseVerdict(seen)
			}
		default:
			anchor := slices.Index(calls, r.afterTool)
			if anchor >= 0 && countOf(calls[anchor:], r.requireOneOf) == 0 {
				return r.completionVerdict()
			}
		}
	}
	return nil
}

func (r *rule) qualifying(calls []string) int {
	if len(r.requireOneOf) == 0 {
		return len(calls)
	}
	return countOf(calls, r.requireOneOf)
}

func (r *rule) toolUseVerdict(seen int) *verdict {
	missing, call := "any tools yet", "one of your available tools"
	if len(r.requireOneOf) > 0 {
		missing, call = "the required tools yet", "one of these tools: "+strings.Join(r.requireOneOf, ", ")
	}

	return &verdict{
		reason: fmt.Sprintf("COMPLETION BLOCKED: the task is not finished and you have not used %s. Make concrete progress "+
			"now by calling %s. Perform actions as tool calls rather than describing them in text.", missing, call),
		context: map[string]any{
			"rule_id": r.id, "require_tool_use": true, "min_tool_calls": r.minToolCalls, "tool_calls_seen": seen,
			"require_one_of": value.Items(r.requireOneOf),
		},
	}
}

func (r *rule) completionVerdict() *verdict {
	return &verdict{
		reason: fmt.Sprintf("COMPLETION BLOCKED: you began discovery with %s but have not yet committed your work. "+
			"Call one of these tools before finishing: %s.", r.afterTool, strings.Join(r.requireOneOf, ", ")),
		context: map[string]any{"rule_id": r.id, "after_tool": r.afterTool, "require_one_of": value.Items(r.requireOneOf)},
	}
}

// callsIn returns the names of the tool calls in a transcript, in order.
func callsIn(messages []envelope.Envelope) []string {
	var names []string
	for i := range messages {
		if name := messages[i].ToolName(); messages[i].Type == envelope.TypeToolCall && name != "" {
			names = append(names, name)
		}
	}
	return names
}

func countOf(calls, names []string) (count int) {
	for _, call := range calls {
		if slices.Contains(names, call) {
			count++
		}
	}
	return count
}

func lastIndex(calls []string, name string) int {
	for i, call := range slices.Backward(calls) {
		if call == name {
			return i
		}
	}
	return -1
}

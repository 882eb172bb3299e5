package tool

import (
	"slices"

	"inbox/agents/runtime/envelope"
)

// DefaultTierCap is how many tools a model is offered with their schemas if nobody says otherwise.
const DefaultTierCap = 15

// Tiers splits a large set: the first tools are offered whole, of the others the model gets a manifest (agent runtime
// contract, section 4.8).
type Tiers struct {
	First    []string
	Second   []string
	Manifest []any // of the second: {name, summary, required_fields}
}

// SplitTiers takes first the tools named by tier_1_tools of the context, then the most used, the mandatory, and the rest
// in order, up to limit (less than 1: DefaultTierCap; tool_tier_hard_cap of the context wins).
func SplitTiers(tools []Entry, context map[string]any, mostUsed []string, limit int) Tiers {
	if limit < 1 {
		limit = DefaultTierCap
	}
	if own, ok := envelope.Integer(context["tool_tier_hard_cap"]); ok {
		limit = int(max(1, own))
	}
	known := namedTools(tools)
	byName := make(map[string]bool, len(known))
	for _, tool := range known {
		byName[tool.name] = true
	}
	var first nameList
	for _, name := range tierCandidates(known, context, mostUsed) {
		if len(first.ordered) < limit && byName[name] {
			first.add(name)
		}
	}
	tiers := Tiers{First: first.ordered, Manifest: []any{}}
	for _, tool := range known {
		if !first.seen[tool.name] {
			tiers.Second = append(tiers.Second, tool.name)
			tiers.Manifest = append(tiers.Manifest, manifestEntry(tool))
		}
	}
	return tiers
}

func manifestEntry(tool namedTool) map[string]any {
	return map[string]any{
		"name": tool.name, "summary": envelope.Trim(envelope.Scalar(tool.fields["description"])),
		"required_fields": list(texts(members(tool.fields["parameters"])["required"])),
	}
}

func tierCandidates(tools []namedTool, context map[string]any, mostUsed []string) []string {
	candidates := slices.Concat(texts(context["tier_1_tools"]), mostUsed)
	for _, tool := range tools {
		if isTrue(tool.fields["mandatory"]) {
			candidates = append(candidates, tool.name)
		}
	}
	for _, tool := range tools {
		candidates = append(candidates, tool.name)
	}
	return candidates
}

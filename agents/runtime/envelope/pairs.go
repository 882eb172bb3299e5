package envelope

import (
	"cmp"
	"slices"
)

// Kinds of messages without their other half.
const (
	OrphanToolCall   = "orphan_tool_call"
	OrphanToolResult = "orphan_tool_result"
)

// Orphan is a tool call without a result after it, or a result without a call before it.
type Orphan struct {
	Index      int // in the list, from zero
	Kind       string
	Type       Type
	ToolName   string
	ToolCallID string // "" = none
}

// Value writes the orphan as it stands in events.
func (o Orphan) Value() map[string]any {
	value := map[string]any{"index": o.Index, "kind": o.Kind, "type": string(o.Type), "tool_name": o.ToolName}
	if o.ToolCallID != "" {
		value["tool_call_id"] = o.ToolCallID
	}
	return value
}

// Orphans finds calls and results that miss their other half, in order. Both match by metadata.tool_call_id; where
// both have none, by the tool's name in order of the calls. Providers reject transcripts with orphans.
func Orphans(list []Envelope) []Orphan {
	type key struct{ id, name string }
	open := map[key][]int{}
	var orphans []Orphan
	for i, e := range list {
		k := key{id: e.ToolCallID()}
		if k.id == "" {
			k.name = e.ToolName()
		}

		switch {
		case e.Type == TypeToolCall:
			open[k] = append(open[k], i)
		case e.Type != TypeToolResult:
		case len(open[k]) > 0:
			open[k] = open[k][1:]
		default:
			orphans = append(orphans, orphan(list, i, OrphanToolResult))
		}
	}

	for _, indices := range open {
		for _, i := range indices {
			orphans = append(orphans, orphan(list, i, OrphanToolCall))
		}
	}

	slices.SortFunc(orphans, func(a, b Orphan) int { return cmp.Compare(a.Index, b.Index) })
	return orphans
}

func orphan(list []Envelope, i int, kind string) Orphan {
	e := list[i]
	return Orphan{Index: i, Kind: kind, Type: e.Type, ToolName: e.ToolName(), ToolCallID: e.ToolCallID()}
}

// Pruned is a transcript without orphans, what was removed, and the one event that reports it.
type Pruned struct {
	Messages []Envelope
	Removed  []Orphan
	Event    map[string]any // {type, metadata}
}

// Prune removes orphans from a transcript.
func Prune(list []Envelope) Pruned {
	orphans := Orphans(list)
	if len(orphans) == 0 {
		metadata := map[string]any{"total_messages": len(list), "orphan_count": 0}
		return Pruned{Messages: list, Event: map[string]any{"type": "tool_pair_validated", "metadata": metadata}}
	}

	dropped := make(map[int]bool, len(orphans))
	var indices, values []any
	for _, o := range orphans {
		dropped[o.Index] = true
		indices, values = append(indices, o.Index), append(values, o.Value())
	}

	retained := make([]Envelope, 0, len(list)-len(orphans))
	for i, message := range list {
		if !dropped[i] {
			retained = append(retained, message)
		}
	}

	return Pruned{Messages: retained, Removed: orphans, Event: map[string]any{
		"type": "tool_pair_pruned",
		"metadata": map[string]any{
			"total_messages": len(list), "orphan_count": len(orphans), "retained_count": len(retained),
			"removed_indices": indices, "orphans": values,
		},
	}}
}

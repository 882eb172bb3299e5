package request

import (
	"time"

	"inbox/agents/runtime/value"
)

// ReadQuery reads the fields of a list query: run_id, tool_name, before, after and limit. Blank and wrongly typed ones
// count as absent. It fails with CodeQuery when a bound is no time (agent runtime contract, section 5).
func ReadQuery(raw map[string]any) (Query, error) {
	runID, _ := value.NonBlank(raw["run_id"])
	toolName, _ := value.NonBlank(raw["tool_name"])
	query := Query{RunID: runID, ToolName: toolName}
	for name, bound := range map[string]*time.Time{"before": &query.Before, "after": &query.After} {
		written, ok := value.NonBlank(raw[name])
		if !ok {
			continue
		}
		at, ok := parseTime(written)
		if !ok {
			return Query{}, invalid(CodeQuery, name+" must be a time such as 2026-01-02T15:04:05Z")
		}
		*bound = at
	}
	if limit, ok := value.Integer(raw["limit"]); ok && limit > 0 {
		query.Limit = int(min(limit, 1<<31-1))
	}
	return query, nil
}

package task

import (
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// Statuses of a task run (agent runtime contract, section 7).
const (
	StatusQueued     = "queued"
	StatusRunning    = "running"
	StatusCancelling = "cancelling"
	StatusCancelled  = "cancelled"
	StatusSucceeded  = "succeeded"
	StatusFailed     = "failed"
)

var statuses = []string{StatusQueued, StatusRunning, StatusCancelling, StatusCancelled, StatusSucceeded, StatusFailed}

// NormalizeStatus gives one of the Status constants; an unknown status is StatusRunning.
func NormalizeStatus(given any) string {
	said, _ := given.(string)
	if status := strings.ToLower(value.Word(said)); slices.Contains(statuses, status) {
		return status
	}
	return StatusRunning
}

// Terminal says whether a run in the status has come to its end.
func Terminal(status string) bool {
	return status == StatusSucceeded || status == StatusFailed || status == StatusCancelled
}

// NormalizeRun gives the canonical task result. It fails with CodeInvalidRun when run_id, session_id or executor_id is
// blank, in this order (agent runtime contract, section 7).
func NormalizeRun(raw map[string]any) (map[string]any, error) {
	for _, name := range []string{"run_id", "session_id", "executor_id"} {
		if value.Word(raw[name]) == "" {
			return nil, refuse(CodeInvalidRun, name+" must be a non-empty string")
		}
	}
	schema := raw["schema"]
	if schema == nil {
		schema = SchemaResult
	}
	executorID := value.Word(raw["executor_id"])
	return map[string]any{
		"schema":            value.Scalar(schema),
		"run_id":            value.Word(raw["run_id"]),
		"session_id":        value.Word(raw["session_id"]),
		"status":            NormalizeStatus(raw["status"]),
		"executor_id":       executorID,
		"owner":             normalizeOwner(raw["owner"]),
		"execution_metrics": normalizeMetrics(raw["execution_metrics"], executorID),
		"artifact_refs":     listOf(raw["artifact_refs"]),
		"diagnostics":       value.ShallowCopy(raw["diagnostics"]),
		"events":            listOf(raw["events"]),
		"provenance":        value.ShallowCopy(raw["provenance"]),
		"output":            raw["output"],
		"started_at":        value.Scalar(raw["started_at"]),
		"updated_at":        value.Scalar(raw["updated_at"]),
		"metadata":          value.ShallowCopy(raw["metadata"]),
	}, nil
}

// normalizeOwner keeps a whole owner and nothing of half of one.
func normalizeOwner(given any) map[string]any {
	owner := value.ShallowCopy(given)
	kind, key := value.Word(owner["type"]), value.Word(owner["key"])
	if kind == "" || key == "" {
		return map[string]any{}
	}
	return map[string]any{"type": kind, "key": key}
}

var (
	metricWords  = []string{"environment", "executor_id", "failure_class"}
	metricCounts = []string{"wall_time_ms", "startup_time_ms", "tool_call_count", "payload_bytes_in", "payload_bytes_out", "artifact_bytes"}
)

// normalizeMetrics brings the known members into form and drops those that cannot be; others are kept.
func normalizeMetrics(given any, executorID string) map[string]any {
	metrics := value.ShallowCopy(given)
	if len(metrics) == 0 {
		return metrics
	}
	metrics["schema"] = or(value.Word(metrics["schema"]), SchemaMetrics)
	if metrics["executor_id"] == nil {
		metrics["executor_id"] = executorID
	}
	for _, name := range metricWords {
		replace(metrics, name, func(given any) (any, bool) { said := value.Word(given); return said, said != "" })
	}
	for _, name := range metricCounts {
		replace(metrics, name, func(given any) (any, bool) { return kept(value.Count(given)) })
	}
	replace(metrics, "per_tool_timings_ms", func(value any) (any, bool) { return timings(value), true })
	replace(metrics, "quality_signals", func(given any) (any, bool) { return value.ShallowCopy(given), true })
	replace(metrics, "raw_refs", func(value any) (any, bool) { return listOf(value), true })
	return metrics
}

func kept(number int64, ok bool) (any, bool) { return number, ok }

// replace changes a member that is there and not null; not ok = it is dropped.
func replace(object map[string]any, name string, change func(any) (value any, ok bool)) {
	if object[name] == nil {
		return
	}
	if value, ok := change(object[name]); ok {
		object[name] = value
	} else {
		delete(object, name)
	}
}

func timings(given any) map[string]any {
	found := map[string]any{}
	for name, timing := range value.ShallowCopy(given) {
		if number, ok := value.Count(timing); ok {
			found[name] = number
		}
	}
	return found
}

func listOf(given any) []any { return slices.Clone(value.Elements(given)) }

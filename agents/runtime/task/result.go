package task

import (
	"maps"
	"regexp"
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

// NormalizeStatus returns one of the Status constants; an unknown status is StatusRunning.
func NormalizeStatus(given any) string {
	said, _ := given.(string)
	if status := strings.ToLower(value.Word(said)); slices.Contains(statuses, status) {
		return status
	}
	return StatusRunning
}

// Terminal reports whether a run in the status has come to its end.
func Terminal(status string) bool {
	return status == StatusSucceeded || status == StatusFailed || status == StatusCancelled
}

// NormalizeRun returns the canonical task result. It fails with CodeInvalidRun when run_id, session_id or executor_id is
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

// RunResult returns the canonical run envelope of a task result: the form in which every kind of run is read. It fails
// like NormalizeRun (agent runtime contract, section 7).
func RunResult(raw map[string]any) (map[string]any, error) {
	run, err := NormalizeRun(raw)
	if err != nil {
		return nil, err
	}

	metadata := map[string]any{}
	for _, name := range []string{"session_id", "executor_id", "execution_metrics", "diagnostics", "events"} {
		metadata[name] = run[name]
	}

	maps.Copy(metadata, value.ShallowCopy(run["metadata"]))
	return map[string]any{
		"schema":        SchemaRunResult,
		"version":       1,
		"run_id":        run["run_id"],
		"status":        run["status"],
		"outputs":       value.ShallowCopy(run["output"]),
		"artifact_refs": references(run["artifact_refs"]),
		"evidence_refs": []any{},
		"logs":          []any{},
		"replay":        map[string]any{},
		"provenance":    run["provenance"],
		"timestamps":    timestamps(run),
		"error":         failureOf(run),
		"cancellation":  cancellationOf(run),
		"metadata":      metadata,
	}, nil
}

// references keeps objects, with their known members trimmed and blank ones dropped.
func references(given any) []any {
	found := []any{}
	for _, item := range listOf(given) {
		reference := value.ShallowCopy(item)
		for _, name := range []string{"type", "label", "id", "url", "path", "mime_type", "sha256", "description"} {
			replace(reference, name, func(given any) (any, bool) { said := value.Word(given); return said, said != "" })
		}
		if len(reference) > 0 {
			found = append(found, reference)
		}
	}
	return found
}

func timestamps(run map[string]any) map[string]any {
	found := map[string]any{}
	for _, name := range []string{"started_at", "updated_at"} {
		if at := value.Word(run[name]); at != "" {
			found[name] = at
		}
	}
	return found
}

// failureOf reads the error of a failed run from its diagnostics, where executors put it.
func failureOf(run map[string]any) map[string]any {
	if run["status"] != StatusFailed {
		return map[string]any{}
	}

	diagnostics := value.ShallowCopy(run["diagnostics"])
	failure := map[string]any{
		"code":    or(value.Word(diagnostics["error_code"]), CodeFailed),
		"message": or(value.Word(diagnostics["error_message"]), "The task run failed."),
	}

	if len(diagnostics) > 0 {
		failure["data"] = map[string]any{"diagnostics": diagnostics}
	}
	return failure
}

func cancellationOf(run map[string]any) map[string]any {
	if run["status"] != StatusCancelling && run["status"] != StatusCancelled {
		return map[string]any{}
	}
	return map[string]any{"requested": true, "status": run["status"]}
}

// private are the keys whose values only managers read (agent runtime contract, section 6.6).
var private = regexp.MustCompile(`(?i)api[_-]?key|authorization|auth[_-]?token|bearer|cookie|credential|diagnostics|nonce|output|` +
	`package|password|private[_-]?key|provenance|raw|secret|token|workflow`)

// Redact returns a copy of a run for callers without privilege: values under private keys are replaced, objects and lists
// by {"redacted": true}, everything else by "[redacted]" (agent runtime contract, section 6.6).
func Redact(payload map[string]any) map[string]any {
	visible := make(map[string]any, len(payload))
	for key, value := range payload {
		visible[key] = redactValue(key, value)
	}
	return visible
}

func redactValue(key string, value any) any {
	_, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case private.MatchString(key) && (isObject || isList):
		return map[string]any{"redacted": true}
	case private.MatchString(key):
		return "[redacted]"
	case isObject:
		return Redact(value.(map[string]any))
	case isList:
		visible := make([]any, len(list))
		for index, item := range list {
			visible[index] = redactValue("", item)
		}
		return visible
	}

	return value
}

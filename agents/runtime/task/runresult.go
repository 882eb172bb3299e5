package task

import (
	"maps"

	"inbox/agents/runtime/value"
)

// RunResult gives the canonical run envelope of a task result: the form in which every kind of run is read. It fails
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

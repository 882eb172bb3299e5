package task

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/agents/runtime/value"
)

// NormalizeInput gives the canonical task input. Members that the contract does not know are kept; session_id and
// run_id are made up when they are missing. It fails with CodeInvalidInput without task.id and task_id (agent runtime
// contract, section 7).
func NormalizeInput(raw map[string]any) (map[string]any, error) {
	input := maps.Clone(raw)
	if input == nil {
		input = map[string]any{}
	}
	work := value.ShallowCopy(raw["task"])
	taskID := value.FirstWord(work["id"], raw["task_id"])
	if taskID == "" {
		return nil, refuse(CodeInvalidInput, "A task needs an id: give task.id or task_id.")
	}
	input["schema"] = or(value.Word(raw["schema"]), SchemaInput)
	input["task"] = normalizeWork(work, raw, taskID)
	input["task_id"] = taskID
	input["session_id"] = or(value.Word(raw["session_id"]), "task_session_"+random())
	input["run_id"] = or(value.Word(raw["run_id"]), NewRunID())
	input["placement"] = placementOf(raw)
	input["client_context"] = value.ShallowCopy(raw["client_context"])
	input["metadata"] = value.ShallowCopy(raw["metadata"])
	return input, nil
}

// normalizeWork completes the inner task with what older callers wrote beside it.
func normalizeWork(work, beside map[string]any, taskID string) map[string]any {
	work["schema"] = or(value.Word(work["schema"]), SchemaInput)
	work["id"] = taskID
	work["instructions"] = value.FirstWord(work["instructions"], beside["instructions"])
	work["input"] = value.ShallowCopy(containerOr(work["input"], beside["input"]))
	work["attachments"] = slices.Clone(value.Elements(containerOr(work["attachments"], beside["attachments"])))
	work["metadata"] = value.ShallowCopy(work["metadata"])
	return work
}

func placementOf(input map[string]any) map[string]any {
	if placement := input["placement"]; value.Container(placement) {
		return NormalizePlacement(value.Assoc(placement))
	}
	return NormalizePlacement(input)
}

// NormalizePlacement gives the canonical hints of where a task may run: preferred_target or null, allowed_targets,
// resource_class, required_capabilities and metadata. It drops everything else (agent runtime contract, section 7).
func NormalizePlacement(raw map[string]any) map[string]any {
	placement := map[string]any{
		"schema":                SchemaPlacement,
		"preferred_target":      nil,
		"allowed_targets":       value.Items(value.Words(raw["allowed_targets"])),
		"resource_class":        or(value.Word(raw["resource_class"]), "generic"),
		"required_capabilities": value.Items(value.Words(raw["required_capabilities"])),
		"metadata":              value.ShallowCopy(raw["metadata"]),
	}
	if preferred := value.Word(raw["preferred_target"]); preferred != "" {
		placement["preferred_target"] = preferred
	}
	return placement
}

// NewRunID makes an id for a run that brings none.
func NewRunID() string { return "task_run_" + random() }

func random() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func containerOr(given, otherwise any) any {
	if value.Container(given) {
		return given
	}
	return otherwise
}

package task

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/agents/runtime/value"
)

// NormalizeInput returns the canonical task input. Members that the contract does not know are kept; session_id and
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

// NormalizePlacement returns the canonical hints of where a task may run: preferred_target or null, allowed_targets,
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

// NormalizeTarget returns the canonical declaration of an executor target. It fails with CodeInvalidTargets when raw is
// no object and with CodeInvalidTarget when it has no id (agent runtime contract, section 7).
func NormalizeTarget(raw any) (map[string]any, error) {
	if !value.Container(raw) {
		return nil, refuse(CodeInvalidTargets, "An executor target is declared by an object.")
	}

	declared := value.ShallowCopy(raw)
	id := value.Word(declared["id"])
	if id == "" {
		return nil, refuse(CodeInvalidTarget, "The declaration of an executor target needs an id.")
	}

	return map[string]any{
		"schema":           or(value.Word(declared["schema"]), SchemaTarget),
		"id":               id,
		"label":            or(value.Word(declared["label"]), id),
		"kind":             or(value.Word(declared["kind"]), "executor"),
		"description":      value.Word(declared["description"]),
		"capabilities":     value.Items(value.Words(declared["capabilities"])),
		"resource_classes": value.Items(value.Words(declared["resource_classes"])),
		"metadata":         value.ShallowCopy(declared["metadata"]),
	}, nil
}

// NormalizeTargets normalizes every declaration; one bad one fails them all (agent runtime contract, section 7).
func NormalizeTargets(raw []any) ([]map[string]any, error) {
	targets := make([]map[string]any, 0, len(raw))
	for _, one := range raw {
		target, err := NormalizeTarget(one)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// Suitable returns the targets that a placement allows, in their order: by allowed_targets, by resource_class (a target
// without classes takes all of them, a placement without one asks for none) and by required_capabilities. Placement may
// be normalized or raw (agent runtime contract, section 7).
func Suitable(targets []map[string]any, placement map[string]any) []map[string]any {
	allowed, required := value.Words(placement["allowed_targets"]), value.Words(placement["required_capabilities"])
	class := value.Word(placement["resource_class"])
	found := []map[string]any{}
	for _, target := range targets {
		classes, offered := value.Words(target["resource_classes"]), value.Words(target["capabilities"])
		switch {
		case len(allowed) > 0 && !slices.Contains(allowed, value.Word(target["id"])),
			class != "" && len(classes) > 0 && !slices.Contains(classes, class),
			slices.ContainsFunc(required, func(one string) bool { return !slices.Contains(offered, one) }):
		default:
			found = append(found, target)
		}
	}

	return found
}

// Select returns the preferred target if it is suitable, else the first suitable one, else nil.
func Select(targets []map[string]any, placement map[string]any) map[string]any {
	suitable := Suitable(targets, placement)
	preferred := value.Word(placement["preferred_target"])
	for _, target := range suitable {
		if preferred != "" && value.Word(target["id"]) == preferred {
			return target
		}
	}

	if len(suitable) == 0 {
		return nil
	}
	return suitable[0]
}

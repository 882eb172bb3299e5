package task

import (
	"slices"

	"inbox/agents/runtime/value"
)

// NormalizeTarget gives the canonical declaration of an executor target. It fails with CodeInvalidTargets when raw is
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

// Suitable gives the targets that a placement allows, in their order: by allowed_targets, by resource_class (a target
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

// Select gives the preferred target if it is suitable, else the first suitable one, else nil.
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

package tool

import (
	"maps"
	"slices"

	"inbox/agents/runtime/value"
)

// ModelParameters is the parameter schema for the model: parameters that the caller's context decides are not in it,
// neither at the top nor in allOf, anyOf and oneOf (agent runtime contract, section 4.3).
func (d *Declaration) ModelParameters() map[string]any {
	schema := value.Clone(value.Assoc(d.Field("parameters")))
	if d == nil {
		return schema
	}
	decided := map[string]bool{}
	for _, bound := range d.bindings {
		if bound.authoritative {
			decided[bound.parameter] = true
		}
	}
	if len(decided) > 0 {
		removeParameters(schema, decided)
	}
	return schema
}

func removeParameters(schema map[string]any, decided map[string]bool) {
	properties, nested := schema["properties"].(map[string]any)
	if !nested {
		properties = schema // the short form: parameters stand directly in the schema
	}
	for name := range decided {
		if _, isSchema := properties[name].(map[string]any); nested || isSchema {
			delete(properties, name)
		}
	}
	if required, ok := schema["required"].([]any); ok {
		schema["required"] = slices.DeleteFunc(required, func(item any) bool { return decided[value.Text(item)] })
	}
	for _, composition := range []string{"allOf", "anyOf", "oneOf"} {
		branches, _ := schema[composition].([]any)
		for _, branch := range branches {
			if branch, ok := branch.(map[string]any); ok {
				removeParameters(branch, decided)
			}
		}
	}
}

// requiredNames are those of the list required, then the properties that say so themselves in the order of their names.
func requiredNames(parameters any) []string {
	schema := value.Assoc(parameters)
	var required value.Set
	listed, _ := value.List(schema["required"])
	for _, item := range listed {
		if name := value.Text(item); name != "" {
			required.Add(name)
		}
	}
	properties := schema
	if schema["properties"] != nil {
		properties = value.Assoc(schema["properties"])
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if property, ok := properties[name].(map[string]any); ok && name != "" && value.Truthy(property["required"]) {
			required.Add(name)
		}
	}
	return required.Ordered
}

package tool

import (
	"maps"
	"slices"
	"strings"

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

// bindingSources are the places that a parameter can be bound to.
var bindingSources = map[string]bool{
	"context": true, "client_context": true, "caller_context": true, "runtime_context": true,
}

// binding says where the value of a parameter comes from instead of, or before, the model.
type binding struct {
	parameter     string
	source        string
	path          string
	sensitive     bool
	authoritative bool // the model cannot set it
	hasDefault    bool
	value         any // the default
}

// parseBindings reads both forms in which bindings are declared; parameter_bindings win.
func parseBindings(declared map[string]any) ([]binding, bool) {
	found := map[string]binding{}
	if short, has := declared["client_context_bindings"]; has && !addContextBindings(found, short) {
		return nil, false
	}
	if long, has := declared["parameter_bindings"]; has && !addParameterBindings(found, long) {
		return nil, false
	}

	bindings := make([]binding, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		bound := found[name]
		bound.parameter = name
		bindings = append(bindings, bound)
	}

	return bindings, true
}

// addContextBindings reads a list of names or an object of parameter: path.
func addContextBindings(found map[string]binding, given any) bool {
	switch paths := value.Plain(given).(type) {
	case []any:
		for _, item := range paths {
			path, ok := value.NonBlank(item)
			if !ok {
				return false
			}
			found[value.Text(item)] = binding{source: "context", path: path}
		}
		return true
	case map[string]any:
		for name, item := range paths {
			path, ok := value.NonBlank(item)
			if !ok || value.Trim(name) == "" {
				return false
			}
			found[value.Trim(name)] = binding{source: "context", path: path}
		}
		return true
	default:
		return false
	}
}

func addParameterBindings(found map[string]binding, given any) bool {
	object, ok := value.Object(value.Plain(given))
	if !ok {
		return false
	}

	for name, item := range object {
		bound, ok := parseBinding(item)
		if !ok || value.Trim(name) == "" {
			return false
		}
		found[value.Trim(name)] = bound
	}
	return true
}

// parseBinding reads "source.path" or {source, path, sensitive?, default?, authoritative?}; other members are an error,
// for a misspelt "authoritative" would give the parameter to the model.
func parseBinding(given any) (binding, bool) {
	if text, ok := given.(string); ok {
		source, path, _ := strings.Cut(value.Trim(text), ".")
		return checkedBinding(binding{source: source, path: path})
	}

	object, ok := given.(map[string]any)
	if !ok {
		return binding{}, false
	}

	bound := binding{source: value.Text(object["source"]), path: value.Text(object["path"])}
	for name, item := range object {
		flag, isFlag := item.(bool)
		switch name {
		case "source", "path":
		case "sensitive":
			bound.sensitive = flag
		case "authoritative":
			bound.authoritative = flag
		case "default":
			bound.hasDefault, bound.value, isFlag = true, value.Clone(item), true
		default:
			return binding{}, false
		}

		if !isFlag && name != "source" && name != "path" {
			return binding{}, false
		}
	}

	return checkedBinding(bound)
}

func checkedBinding(bound binding) (binding, bool) {
	bound.path = value.Trim(bound.path)
	return bound, bindingSources[bound.source] && bound.path != ""
}

// bindingsObject writes bindings in their one declared form.
func bindingsObject(bindings []binding) map[string]any {
	object := make(map[string]any, len(bindings))
	for _, bound := range bindings {
		member := map[string]any{"source": bound.source, "path": bound.path}
		if bound.sensitive {
			member["sensitive"] = true
		}
		if bound.hasDefault {
			member["default"] = bound.value
		}
		if bound.authoritative {
			member["authoritative"] = true
		}
		object[bound.parameter] = member
	}

	return object
}

// parseDefaults reads parameter_defaults. A default of sensitive name is not kept: declarations travel.
func parseDefaults(declared map[string]any) (map[string]any, bool) {
	given, has := declared["parameter_defaults"]
	if !has {
		return nil, true
	}

	object, ok := value.Object(value.Plain(given))
	if !ok {
		return nil, false
	}

	defaults := make(map[string]any, len(object))
	for name, item := range object {
		trimmed := value.Trim(name)
		if trimmed == "" {
			return nil, false
		}
		defaults[trimmed] = value.Clone(item)
		if SensitiveName(trimmed) {
			defaults[trimmed] = Redacted
		}
	}

	return defaults, true
}

// resolve looks the value up in the context of a call.
func (b binding) resolve(context map[string]any) (any, bool) {
	var value any = context
	if b.source != "context" {
		value = context[b.source]
	}

	for segment := range strings.SplitSeq(b.path, ".") {
		object, ok := value.(map[string]any)
		if !ok || segment == "" {
			return nil, false
		}
		if value, ok = object[segment]; !ok {
			return nil, false
		}
	}

	return value, true
}

package tool

import "inbox/agents/runtime/value"

// canonicalMembers are the members that normalization writes itself; all others of a declaration are extensions.
var canonicalMembers = map[string]bool{
	"name": true, "source": true, "description": true, "parameters": true, "executor": true, "scope": true,
	"runtime": true, "parameter_bindings": true, "parameter_defaults": true,
}

// extensions copies the members that the contract does not name. Sensitive names are kept: a declaration is no place
// for secrets.
func extensions(declared map[string]any) map[string]any {
	fields := make(map[string]any, len(declared)+4)
	for name, value := range declared {
		if canonicalMembers[name] {
			continue
		}
		if kept := withoutNulls(value); kept != nil {
			fields[name] = kept
		}
	}
	return fields
}

// RuntimeMetadata normalizes the runtime member of a declaration or a result: members of sensitive name at the top
// become "[redacted]", nulls are left out at every level. What is no object gives an empty one (agent runtime contract,
// section 4.1).
func RuntimeMetadata(given any) map[string]any {
	runtime := map[string]any{}
	for name, item := range value.Members(given) {
		if name == "" {
			continue
		}
		if SensitiveName(name) {
			runtime[name] = Redacted
			continue
		}
		if kept := withoutNulls(item); kept != nil {
			runtime[name] = kept
		}
	}
	return runtime
}

func withoutNulls(given any) any {
	switch value := value.Plain(given).(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for name, item := range value {
			if item := withoutNulls(item); item != nil {
				kept[name] = item
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(value))
		for _, item := range value {
			if item := withoutNulls(item); item != nil {
				kept = append(kept, item)
			}
		}
		return kept
	default:
		return value
	}
}

package loop

import (
	"regexp"
	"strings"

	"inbox/agents/runtime/value"
)

// StructuredOutput is a request for an answer that is one JSON value of a schema (agent runtime contract, section 9).
// It excludes tools and streaming.
type StructuredOutput struct {
	Schema map[string]any
	Name   string // "" or [A-Za-z][A-Za-z0-9_-]{0,63}
	Strict bool   // whether the answer is checked against the schema; false checks that it is JSON
}

const formatJSONSchema = "json_schema"

var outputName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

func structuredError(path, reason string) error { return invalid(codeStructuredOutput, path, reason) }

func errStructuredMixed() error {
	return structuredError("", "structured output requires a no-tools, non-streaming turn")
}

// ParseStructuredOutput reads {format?, schema, name?, strict?}. Errors have the code
// invalid_agent_structured_output_request.
func ParseStructuredOutput(given any) (*StructuredOutput, error) {
	if !value.Container(given) {
		return nil, structuredError("structured_output", "must be an array")
	}

	raw := value.Assoc(given)
	name, isText := raw["name"].(string)
	strict, isBool := raw["strict"].(bool)
	format, isFormat := raw["format"].(string)
	_, hasStrict := raw["strict"]
	_, hasFormat := raw["format"]
	switch {
	case !value.Container(raw["schema"]):
		return nil, structuredError("schema", "must be an array")
	case raw["name"] != nil && !isText:
		return nil, structuredError("name", "must be a string or null")
	case hasStrict && !isBool:
		return nil, structuredError("strict", "must be a boolean")
	case hasFormat && !isFormat:
		return nil, structuredError("format", "must be a string")
	case hasFormat && format != formatJSONSchema:
		return nil, structuredError("format", "must be json_schema")
	}

	if name = value.Trim(name); isText && !outputName.MatchString(name) {
		return nil, structuredError("name", "must match /^[A-Za-z][A-Za-z0-9_-]{0,63}$/")
	}

	return &StructuredOutput{Schema: value.Assoc(raw["schema"]), Name: name, Strict: strict || !hasStrict}, nil
}

// Read turns the text of a model into members of a provider turn: structured_output {parsed, diagnostics}, or failure
// and provider_diagnostics when it is not JSON (structured_output_invalid_json) or does not fit
// (structured_output_schema_mismatch).
func (s *StructuredOutput) Read(text string) map[string]any {
	parsed, err := value.Decode([]byte(strings.TrimSpace(text)), value.Limits{})
	if err != nil {
		return structuredFailure("invalid_json", "Provider returned invalid JSON for the requested structured output.", "")
	}
	if problem := s.Mismatch(parsed); s.Strict && problem != "" {
		return structuredFailure("schema_mismatch", "Provider structured output does not match the requested schema.", problem)
	}

	return map[string]any{"structured_output": map[string]any{
		"parsed": parsed, "diagnostics": map[string]any{"status": "parsed"},
	}}
}

func structuredFailure(status, message, code string) map[string]any {
	diagnostics := map[string]any{"status": status}
	if code != "" {
		diagnostics["code"] = code
	}
	return map[string]any{
		"failure":              map[string]any{"type": "structured_output_" + status, "message": message},
		"provider_diagnostics": map[string]any{"structured_output": diagnostics},
	}
}

// Mismatch checks a value against type, enum, required, properties, additionalProperties: false and items, and names
// the first rule that it breaks; "" when it fits. Objects and lists are told apart, empty ones too.
func (s *StructuredOutput) Mismatch(value any) string { return mismatch(value, s.Schema) }

func mismatch(given any, schema map[string]any) string {
	if kind := schema["type"]; kind != nil && !hasType(given, kind) {
		return "type_mismatch"
	}
	if allowed, is := value.List(schema["enum"]); is && !oneOf(given, allowed) {
		return "enum_mismatch"
	}

	switch typed := given.(type) {
	case map[string]any:
		return objectMismatch(typed, schema)
	case []any:
		items, is := value.Object(schema["items"])
		for _, item := range typed {
			if problem := mismatch(item, items); is && problem != "" {
				return problem
			}
		}
	}

	return ""
}

func objectMismatch(object, schema map[string]any) string {
	required, _ := value.List(schema["required"])
	for _, name := range required {
		text, isText := name.(string)
		if _, present := object[text]; !isText || !present {
			return "required_property_missing"
		}
	}

	properties := value.Assoc(schema["properties"])
	for _, row := range entries(object) {
		property, known := value.Object(properties[row.key])
		if known {
			if problem := mismatch(row.value, property); problem != "" {
				return problem
			}
		} else if open, says := schema["additionalProperties"].(bool); says && !open {
			return "additional_property_forbidden"
		}
	}

	return ""
}

func oneOf(given any, allowed []any) bool {
	for _, candidate := range allowed {
		if sameKind(given, candidate) && value.Equal(given, candidate) {
			return true
		}
	}
	return false
}

// sameKind keeps {} and [] apart, which envelope.Equal does not.
func sameKind(a, b any) bool {
	_, left := a.(map[string]any)
	_, right := b.(map[string]any)
	return left == right
}

func hasType(given, kind any) bool {
	names, several := value.List(kind)
	if !several {
		names = []any{kind}
	}

	for _, name := range names {
		if isOfType(given, value.Text(name)) {
			return true
		}
	}
	return false
}

func isOfType(given any, kind string) (is bool) {
	switch kind {
	case "object":
		_, is = given.(map[string]any)
	case "array":
		_, is = given.([]any)
	case "string":
		_, is = given.(string)
	case "boolean":
		_, is = given.(bool)
	case "number":
		is = value.Number(given)
	case "integer":
		_, is = value.Integer(given)
	case "null":
		is = given == nil
	}
	return is
}

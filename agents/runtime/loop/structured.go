package loop

import (
	"regexp"
	"strings"

	"inbox/agents/runtime/envelope"
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
func ParseStructuredOutput(value any) (*StructuredOutput, error) {
	if !envelope.Container(value) {
		return nil, structuredError("structured_output", "must be an array")
	}
	raw := envelope.Assoc(value)
	name, isText := raw["name"].(string)
	strict, isBool := raw["strict"].(bool)
	format, isFormat := raw["format"].(string)
	_, hasStrict := raw["strict"]
	_, hasFormat := raw["format"]
	switch {
	case !envelope.Container(raw["schema"]):
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
	if name = envelope.Trim(name); isText && !outputName.MatchString(name) {
		return nil, structuredError("name", "must match /^[A-Za-z][A-Za-z0-9_-]{0,63}$/")
	}
	return &StructuredOutput{Schema: envelope.Assoc(raw["schema"]), Name: name, Strict: strict || !hasStrict}, nil
}

// Object writes the request as {format, schema, strict, name?}.
func (s *StructuredOutput) Object() map[string]any {
	object := map[string]any{"format": formatJSONSchema, "schema": s.Schema, "strict": s.Strict}
	if s.Name != "" {
		object["name"] = s.Name
	}
	return object
}

// Read turns the text of a model into members of a provider turn: structured_output {parsed, diagnostics}, or failure
// and provider_diagnostics when it is no JSON (structured_output_invalid_json) or does not fit
// (structured_output_schema_mismatch).
func (s *StructuredOutput) Read(text string) map[string]any {
	parsed, err := envelope.Decode([]byte(strings.TrimSpace(text)), envelope.Limits{})
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

func mismatch(value any, schema map[string]any) string {
	if kind := schema["type"]; kind != nil && !hasType(value, kind) {
		return "type_mismatch"
	}
	if allowed, is := envelope.List(schema["enum"]); is && !oneOf(value, allowed) {
		return "enum_mismatch"
	}
	switch value := value.(type) {
	case map[string]any:
		return objectMismatch(value, schema)
	case []any:
		items, is := envelope.Object(schema["items"])
		for _, item := range value {
			if problem := mismatch(item, items); is && problem != "" {
				return problem
			}
		}
	}
	return ""
}

func objectMismatch(object, schema map[string]any) string {
	required, _ := envelope.List(schema["required"])
	for _, name := range required {
		text, isText := name.(string)
		if _, present := object[text]; !isText || !present {
			return "required_property_missing"
		}
	}
	properties := envelope.Assoc(schema["properties"])
	for _, row := range entries(object) {
		property, known := envelope.Object(properties[row.key])
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

func oneOf(value any, allowed []any) bool {
	for _, candidate := range allowed {
		if sameKind(value, candidate) && envelope.Equal(value, candidate) {
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

func hasType(value, kind any) bool {
	names, several := envelope.List(kind)
	if !several {
		names = []any{kind}
	}
	for _, name := range names {
		if isOfType(value, envelope.Text(name)) {
			return true
		}
	}
	return false
}

func isOfType(value any, kind string) (is bool) {
	switch kind {
	case "object":
		_, is = value.(map[string]any)
	case "array":
		_, is = value.([]any)
	case "string":
		_, is = value.(string)
	case "boolean":
		_, is = value.(bool)
	case "number":
		is = envelope.Number(value)
	case "integer":
		_, is = envelope.Integer(value)
	case "null":
		is = value == nil
	}
	return is
}

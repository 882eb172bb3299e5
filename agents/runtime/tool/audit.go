package tool

import (
	"regexp"
	"strings"

	"inbox/agents/runtime/value"
)

// Outcome is what an audit event says of one call.
type Outcome struct {
	Prepared Prepared
	CallID   string
	Turn     int
	Result   map[string]any // normalized
}

// AuditEvent is the record of a call that may be shown to anyone: hashes and status, no parameters, no result (agent
// runtime contract, section 4.7).
func AuditEvent(outcome Outcome) map[string]any {
	success := value.Truthy(outcome.Result["success"])
	status := "error"
	if success {
		status = "success"
	}

	event := map[string]any{
		"schema_version": 1, "type": "tool_call", "turn_count": outcome.Turn, "tool_name": outcome.Prepared.ModelName,
		"tool_call_id": outcome.CallID, "tool_source": outcome.Prepared.Declaration.Source(),
		"parameters_sha256": outcome.Prepared.ParametersSHA256, "parameters_redacted": true, "success": success,
		"result_status": status, "result_sha256": ResultHash(outcome.Result),
		"error_type": value.Text(value.Members(outcome.Result["metadata"])["error_type"]),
	}

	for name, value := range event {
		if value == "" {
			delete(event, name)
		}
	}

	return event
}

// ResultHash is result_sha256: it covers success, tool name, metadata and on failure the hash of the error text. The
// result itself is not hashed (agent runtime contract, section 4.7).
func ResultHash(result map[string]any) string {
	success := value.Truthy(result["success"])
	summary := map[string]any{
		"success": success, "tool_name": value.Text(result["tool_name"]), "metadata": value.Members(result["metadata"]),
	}

	if !success {
		text, ok := result["error"].(string)
		if !ok {
			text = failedText
		}
		summary["error_sha256"] = Hash(text)
	}
	return Hash(summary)
}

// Redacted stands in records where a sensitive value was.
const Redacted = "[redacted]"

var sensitivePattern = regexp.MustCompile(`(?i)api[_-]?key|authorization|auth[_-]?token|bearer|cookie|credential|nonce|password|private[_-]?key|secret|session[_-]?id|token`)

// SensitiveName reports whether a member of this name holds a secret by its name alone; max_tokens is one, too (agent
// runtime contract, section 4.1).
func SensitiveName(name string) bool { return sensitivePattern.MatchString(name) }

// pathNode is a tree of declared sensitive paths. The member "*" stands for every name and for the items of lists.
type pathNode struct {
	next map[string]*pathNode
	end  bool
}

func (n *pathNode) add(path string) {
	for segment := range strings.SplitSeq(path, ".") {
		if n.next == nil {
			n.next = map[string]*pathNode{}
		}
		if n.next[segment] == nil {
			n.next[segment] = &pathNode{}
		}
		n = n.next[segment]
	}
	n.end = true
}

// sensitivePaths collects what a declaration calls sensitive: lists of names, bindings and its parameter schema.
func sensitivePaths(fields map[string]any, bindings []binding) *pathNode {
	root := &pathNode{}
	addDeclaredPaths(root, fields["sensitive_parameters"])
	addDeclaredPaths(root, fields["parameter_sensitivity"])

	for _, bound := range bindings {
		if bound.sensitive {
			root.add(bound.parameter)
		}
	}

	addSchemaPaths(root, value.Assoc(fields["parameters"]), "")
	return root
}

// addDeclaredPaths reads a list of names or an object of name: true; a text in the object is a name, too.
func addDeclaredPaths(root *pathNode, given any) {
	if object, ok := given.(map[string]any); ok {
		for name, item := range object {
			if name = value.Trim(name); value.Flag(item) && name != "" {
				root.add(name)
			}
		}
	}
	if value.PlainContainer(given) {
		for _, name := range value.Names(given) {
			root.add(name)
		}
	}
}

func addSchemaPaths(root *pathNode, schema map[string]any, path string) {
	if path != "" && schemaIsSensitive(schema) {
		root.add(path)
	}

	for name, property := range value.Assoc(schema["properties"]) {
		if property, ok := property.(map[string]any); ok {
			addSchemaPaths(root, property, joinPath(path, name))
		}
	}

	if items, ok := schema["items"].(map[string]any); ok {
		addSchemaPaths(root, items, joinPath(path, "*"))
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func schemaIsSensitive(schema map[string]any) bool {
	for _, mark := range []string{"sensitive", "x-sensitive", "secret", "writeOnly"} {
		if value.Flag(schema[mark]) {
			return true
		}
	}
	return schema["format"] == "password"
}

// RedactParameters copies parameters for records: a value becomes "[redacted]" when its path is declared sensitive or
// its own name is (agent runtime contract, section 4.7). The declaration may be nil; then the names alone decide.
func RedactParameters(parameters map[string]any, declaration *Declaration) map[string]any {
	var start []*pathNode
	if declaration != nil && declaration.sensitive.next != nil {
		start = []*pathNode{declaration.sensitive}
	}
	return redactObject(parameters, start)
}

func redactObject(object map[string]any, at []*pathNode) map[string]any {
	redacted := make(map[string]any, len(object))
	for name, value := range object {
		next, declared := follow(at, name)
		if declared || SensitiveName(name) {
			redacted[name] = Redacted
			continue
		}
		redacted[name] = redactValue(value, next)
	}
	return redacted
}

func redactValue(given any, at []*pathNode) any {
	switch value := value.Plain(given).(type) {
	case map[string]any:
		return redactObject(value, at)
	case []any:
		next, declared := follow(at, "*")
		redacted := make([]any, len(value))
		for index, item := range value {
			if declared {
				redacted[index] = Redacted
				continue
			}
			redacted[index] = redactValue(item, next)
		}
		return redacted
	default:
		return value
	}
}

// follow walks one member down every declared path. A name with dots walks as many steps as it has parts, for declared
// paths cannot tell the two apart.
func follow(at []*pathNode, name string) (next []*pathNode, declared bool) {
	if len(at) == 0 {
		return nil, false
	}

	for _, node := range at {
		if every := node.next["*"]; every != nil {
			next = append(next, every)
		}

		exact := node
		for segment := range strings.SplitSeq(name, ".") {
			if exact = exact.next[segment]; exact == nil {
				break
			}
		}

		if exact != nil && name != "*" {
			next = append(next, exact)
		}
	}

	for _, node := range next {
		declared = declared || node.end
	}

	return next, declared
}

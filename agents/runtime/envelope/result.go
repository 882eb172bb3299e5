package envelope

import (
	"fmt"
	"maps"

	"inbox/agents/runtime/value"
)

// ResultSchema and ResultVersion stand in every conversation result.
const (
	ResultSchema  = "agents-api.conversation-result"
	ResultVersion = 1
)

// NormalizeResult checks a conversation result and completes it: canonical messages, empty lists for missing ones,
// run_outcome and tool_observability. The messages may also be a []Envelope. Members that the contract does not know are kept. The value given is not changed.
// Errors are of type *Error with code CodeResult and the path of the failing member (agent runtime contract, section 2).
func NormalizeResult(raw any) (map[string]any, error) {
	given, is := value.Object(raw)
	if !is {
		return nil, &Error{Code: CodeResult, Path: "result", Reason: "must be an array"}
	}

	result := maps.Clone(given)
	if err := head(result); err != nil {
		return nil, err
	}
	if err := messages(result); err != nil {
		return nil, err
	}
	if err := lists(result); err != nil {
		return nil, err
	}
	if err := check(result, "", resultRules); err != nil {
		return nil, err
	}

	if failure, there := result["failure"]; there {
		if err := check(value.Assoc(failure), "failure.", failureRules); err != nil {
			return nil, err
		}
	}

	events, _ := value.List(result["tool_events"])
	executions, _ := value.List(result["tool_execution_results"])
	result["tool_observability"] = Observe(events, executions)
	result["run_outcome"] = RunOutcome(result)
	return result, nil
}

func head(result map[string]any) error {
	if _, there := result["schema"]; !there {
		result["schema"] = ResultSchema
	}
	if _, there := result["version"]; !there {
		result["version"] = ResultVersion
	}
	if result["schema"] != ResultSchema {
		return wrong("schema", "must be "+ResultSchema)
	}
	if version, is := value.Integer(result["version"]); !is || version != ResultVersion {
		return wrong("version", fmt.Sprintf("must be %d", ResultVersion))
	}
	return nil
}

// messages replaces the messages by canonical ones. Those that are canonical already are taken as they are.
func messages(result map[string]any) error {
	if list, is := result["messages"].([]Envelope); is {
		result["messages"] = Values(list)
		return nil
	}

	list, is := value.List(result["messages"])
	if !is {
		return wrong("messages", "must be an array")
	}

	normalized := make([]any, len(list))
	for i, item := range list {
		message, is := value.Object(item)
		if !is {
			return wrong(messagePath(i), "must be an array")
		}

		envelope, err := Normalize(message)
		if err != nil {
			return wrong(messagePath(i), err.Error())
		}

		if normalized[i] = message; !canonical(message) {
			normalized[i] = envelope.Value()
		}
	}

	result["messages"] = normalized
	return nil
}

func messagePath(i int) string { return fmt.Sprintf("messages[%d]", i) }

// lists fills in the three lists and checks their entries.
func lists(result map[string]any) error {
	for _, list := range listRules {
		if _, there := result[list.name]; !there {
			result[list.name] = []any{}
		}
		if _, is := value.List(result[list.name]); !is {
			return wrong(list.name, "must be an array")
		}
	}

	for _, list := range listRules {
		entries, _ := value.List(result[list.name])
		for i, entry := range entries {
			path := fmt.Sprintf("%s[%d]", list.name, i)
			object, is := value.Object(entry)
			if !is {
				return wrong(path, "must be an array")
			}
			if err := check(object, path+".", list.rules); err != nil {
				return err
			}
		}
	}

	return nil
}

func wrong(path, reason string) error { return &Error{Code: CodeResult, Path: path, Reason: reason} }

// form is what a member of a result must be.
type form int

const (
	nonEmptyText form = iota
	text
	integer
	boolean
	container // object or list
)

// reasons are the texts of the contract, to which optional members add " when present".
var reasons = map[form]string{
	nonEmptyText: "must be a non-empty string",
	text:         "must be a string",
	integer:      "must be an integer",
	boolean:      "must be a boolean",
	container:    "must be an array",
}

type rule struct {
	member   string
	form     form
	optional bool
}

// listRules are checked in this order, and the members of an entry in theirs (agent runtime contract, section 2).
var listRules = []struct {
	name  string
	rules []rule
}{
	{"tool_execution_results", []rule{
		{"tool_name", nonEmptyText, false},
		{"result", container, false},
		{"parameters", container, false},
		{"is_handler_tool", boolean, true},
		{"runtime", container, true},
		{"turn_count", integer, false},
	}},
	{"tool_audit_events", []rule{
		{"type", nonEmptyText, false},
		{"tool_name", nonEmptyText, false},
		{"tool_call_id", nonEmptyText, false},
		{"parameters_sha256", nonEmptyText, false},
		{"result_sha256", nonEmptyText, false},
		{"schema_version", integer, false},
		{"turn_count", integer, false},
		{"success", boolean, false},
		{"error_type", text, true},
	}},
	{"tool_events", []rule{
		{"type", nonEmptyText, false},
		{"tool_name", nonEmptyText, false},
		{"tool_call_id", nonEmptyText, false},
		{"turn_count", integer, false},
		{"status", text, true},
		{"metadata", container, true},
	}},
}

var resultRules = []rule{
	{"status", text, true},
	{"budget", text, true},
	{"turn_count", integer, true},
	{"final_content", text, true},
	{"usage", container, true},
	{"metadata", container, true},
	{"request_metadata", container, true},
	{"provider_diagnostics", container, true},
	{"structured_output_diagnostics", container, true},
	{"completed", boolean, true},
	{"failure", container, true},
	{"runtime_tool_pending", container, true},
}

var failureRules = []rule{
	{"type", nonEmptyText, false},
	{"message", nonEmptyText, false},
	{"turn_count", integer, true},
}

// check finds the first member that is not as its rule says.
func check(object map[string]any, path string, rules []rule) error {
	for _, r := range rules {
		member, there := object[r.member]
		if r.optional && !there || fits(member, r.form) {
			continue
		}
		reason := reasons[r.form]
		if r.optional && r.form != nonEmptyText {
			reason += " when present"
		}
		return wrong(path+r.member, reason)
	}
	return nil
}

func fits(member any, wanted form) bool {
	switch wanted {
	case nonEmptyText:
		return value.Text(member) != ""
	case text:
		_, is := member.(string)
		return is
	case integer:
		_, is := value.Integer(member)
		return is
	case boolean:
		_, is := member.(bool)
		return is
	default:
		return value.Container(member)
	}
}

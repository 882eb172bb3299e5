package envelope

import "inbox/agents/runtime/value"

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

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
	result["tool_observability"] = observe(events, executions)
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

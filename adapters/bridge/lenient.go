package bridge

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// markLenient is the member of metadata.agent_framework that lists where a row breaks the rules of its form.
const (
	markFramework = "agent_framework"
	markLenient   = "lenient"
)

// maxRepairs bounds the rules that one row can break: each of its members has one.
const maxRepairs = 8

// lenientRow reads a row as the older agent framework stores it. Such rows may break the framework's own rules: numeric timestamps, a turn id
// in place of the agent, text in place of an object, type-specific members beside an empty content, and unlisted types. It returns a
// repaired copy for the envelope, and the rules that the given row breaks, if any. It fails for a value that is no row.
func lenientRow(given any) (row map[string]any, broken []string, err error) {
	message, is := given.(map[string]any)
	if !is || value.Text(message["type"]) == "" {
		return nil, nil, envelope.ValidateFramework(given) //nolint:wrapcheck // it names the member
	}

	row = maps.Clone(message)
	probe := maps.Clone(message) // it has every repair, so that the next broken rule is found
	for range maxRepairs {
		problem, is := errors.AsType[*envelope.Error](envelope.ValidateFramework(probe))
		if !is {
			break
		}
		broken = append(broken, reasonOf(problem))
		switch member, inContent := strings.CutPrefix(problem.Path, "content."); {
		case inContent: // a text is shown as it is
			if member == "error_message" {
				row["content"] = failureOfRow(message)
			}
			probe["content"] = map[string]any{"error_message": "unknown", "operation": "unknown", "plan": map[string]any{}, "steps": []any{}}
		case member == "agent_key":
			delete(row, member)
			probe[member] = "unknown"
		default:
			repair(row, message, member)
			repair(probe, message, member)
		}
	}
	return row, broken, nil
}

// reasonOf shortens the list of types that the error names.
func reasonOf(problem *envelope.Error) string {
	reason, _, _ := strings.Cut(problem.Reason, ";")
	return problem.Path + " " + reason
}

// repair sets a member that breaks a rule to what the row says elsewhere, or removes it.
func repair(row, given map[string]any, member string) {
	switch member {
	case "type":
		row["type"] = string(nearest(value.Text(given["type"])))
	case "timestamp":
		delete(row, member)
		if at, is := instant(given["timestamp"]); is {
			row[member] = at
		}
	case "metadata":
		delete(row, member)
	case "tool":
		row[member] = firstText(given, "tool_name", "action", "name", "function")
	case "args":
		row[member] = firstObject(given, "parameters", "arguments", "input", "action_input")
	case "content":
		row[member] = contentOfRow(given)
	}
}

// nearest is the type of the rules that shows a row of another type: what workers observed, or context.
func nearest(kind string) envelope.FrameworkType {
	switch {
	case strings.Contains(kind, "observation"), strings.Contains(kind, "result"):
		return envelope.Observation
	case strings.Contains(kind, "plan"):
		return envelope.ScriptPlan
	case strings.Contains(kind, "synthesis"):
		return envelope.Synthesis
	}
	return envelope.InjectedContext
}

// largestSeconds is the largest time in seconds that is taken for one: a larger number counts milliseconds.
const largestSeconds = 1e11

// instant reads a time that is written as a number of seconds or milliseconds.
func instant(given any) (written string, ok bool) {
	var seconds float64
	var err error
	switch number := given.(type) {
	case json.Number:
		seconds, err = number.Float64()
	case float64:
		seconds = number
	case int64:
		seconds = float64(number)
	case int:
		seconds = float64(number)
	}
	if err != nil || !(seconds > 0) || seconds > 1e3*largestSeconds {
		return "", false
	}
	if seconds > largestSeconds {
		seconds /= 1e3
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(fraction*1e6))*1e3).UTC().Format(time.RFC3339Nano), true
}

func firstText(given map[string]any, names ...string) string {
	for _, name := range names {
		if text, is := value.NonBlank(given[name]); is {
			return text
		}
	}
	return "unknown"
}

func firstObject(given map[string]any, names ...string) map[string]any {
	for _, name := range names {
		if object, is := value.Object(given[name]); is {
			return object
		}
	}
	return map[string]any{}
}

// contentOfRow is what a row without content says in the members of its type; else all that it says.
func contentOfRow(given map[string]any) any {
	for _, name := range []string{"task", "summary", "message", "text", "result", "observation", "plan", "steps", "script", "context", "error"} {
		if said := given[name]; said != nil && said != "" {
			if _, text := said.(string); text || value.Container(said) {
				return said
			}
		}
	}
	rest := maps.Clone(given)
	for _, name := range []string{"type", "content", "timestamp", "agent_key", "metadata"} {
		delete(rest, name)
	}
	return rest
}

// failureOfRow is the content of an error that stands as a text, with the members beside it.
func failureOfRow(given map[string]any) any {
	content := map[string]any{"error_message": ""}
	switch said := given["content"].(type) {
	case string:
		content["error_message"] = said
	case map[string]any:
		maps.Copy(content, said)
		content["error_message"] = firstText(said, "message", "error", "detail")
	default:
		content["error_message"] = value.EncodeText(said)
	}
	for _, name := range []string{"error_type", "tool"} {
		if given[name] != nil && content[name] == nil {
			content[name] = given[name]
		}
	}
	return content
}

// markBroken lists in an envelope which rules its row broke.
func markBroken(message *envelope.Envelope, given any, broken []string) {
	if len(broken) == 0 {
		return
	}
	mark := value.Filled(maps.Clone(value.Assoc(message.Metadata[markFramework])))
	list := make([]any, len(broken))
	for i, reason := range broken {
		list[i] = reason
	}
	mark[markLenient], mark["row"] = list, given
	message.Metadata = value.Filled(maps.Clone(message.Metadata))
	message.Metadata[markFramework] = mark
}

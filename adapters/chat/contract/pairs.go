package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// tools are the calls and results of client tools in one message, by their toolCallId.
type tools struct {
	order   []string // of the calls
	calls   map[string]map[string]any
	results map[string]map[string]any
}

// pairsOf makes the envelopes of client tools that ran at the caller: each call followed by its result. A data part with
// a toolCallId is a result if it has a member result, null included, and a call otherwise (agent runtime contract,
// section 6.5).
func pairsOf(parts []map[string]any) ([]any, error) {
	found := tools{calls: map[string]map[string]any{}, results: map[string]map[string]any{}}
	for _, data := range dataOf(parts) {
		if err := found.add(value.Scalar(data["toolCallId"]), data); err != nil {
			return nil, err
		}
	}

	for id := range found.results {
		if found.calls[id] == nil {
			return nil, errUnmatched
		}
	}

	for _, id := range found.order {
		if found.results[id] == nil {
			return nil, errUnmatched
		}
	}

	var messages []any
	for _, id := range found.order {
		call, result, err := pair(id, found.calls[id], found.results[id])
		if err != nil {
			return nil, err
		}
		messages = append(messages, call.Value(), result.Value())
	}

	return messages, nil
}

var errUnmatched = refuse(CodeInvalidParams, "Every inbound tool call must have one matching result.")

func (t *tools) add(id string, data map[string]any) error {
	_, isResult := data["result"]
	switch {
	case id == "":
	case isResult && t.results[id] != nil:
		return refuse(CodeInvalidParams, "Inbound tool results must have unique toolCallId values.")
	case isResult:
		t.results[id] = data
	case t.calls[id] != nil:
		return refuse(CodeInvalidParams, "Inbound tool calls must have unique toolCallId values.")
	default:
		t.order = append(t.order, id)
		t.calls[id] = data
	}

	return nil
}

func pair(id string, call, result map[string]any) (called, answered envelope.Envelope, err error) {
	name := value.Scalar(call["toolId"])
	if name == "" {
		return called, answered, refuse(CodeInvalidParams, "Inbound tool calls require toolId.")
	}
	if said := value.Scalar(result["toolId"]); said != "" && said != name {
		return called, answered, refuse(CodeInvalidParams, "Inbound tool call and result toolId values must match.")
	}

	called = envelope.NewToolCall("", name, nil, 0, map[string]any{"tool_call_id": id})
	if arguments := call["arguments"]; value.Container(arguments) {
		called.Payload["parameters"] = value.Clone(arguments)
	}

	body := value.Clone(result["result"])
	answered = envelope.NewToolResult(asciiJSON(body), name, map[string]any{"result": body}, map[string]any{"tool_call_id": id})
	return called, answered, nil
}

// asciiJSON writes a value as JSON in ASCII with "/" escaped, the recorded form of a result's content.
func asciiJSON(given any) string {
	if number, is := given.(json.Number); is {
		return strings.ToLower(value.Scalar(number))
	}

	text := value.EncodeText(given)
	var ascii strings.Builder
	ascii.Grow(len(text))

	for _, char := range text {
		switch {
		case char == '/':
			ascii.WriteString(`\/`)
		case char < utf8.RuneSelf:
			ascii.WriteRune(char)
		default:
			for _, unit := range utf16.Encode([]rune{char}) {
				fmt.Fprintf(&ascii, `\u%04x`, unit)
			}
		}
	}

	return ascii.String()
}

package contract

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func TestRecordedCases(t *testing.T) {
	fixturetest.Run(t, "jsonrpc-chat", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "dispatch":
			return playDispatch(c.Object()), nil
		case "delta":
			return DeltaFrame("task-1", ReadDelta(c.Object())), nil
		case "task":
			output, err := ReadOutput(c.Object())
			return TaskOf(output), err
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

// playDispatch answers with a handler that says what the script says, and returns what the handler got.
func playDispatch(input map[string]any) map[string]any {
	request, refused := ReadRequest(value.Scalar(input["agent_id"]), []byte(value.EncodeText(input["body"])))
	if refused != nil {
		return map[string]any{"response": refused.Frame(), "chat_input": nil}
	}

	var got, response any
	script := value.Assoc(input["handler"])
	Answer(context.Background(), request, func(_ context.Context, input Input, _ func(map[string]any) bool) (any, error) {
		got = input.value()
		if failure, is := value.Object(script["error"]); is {
			return nil, refuse(value.Text(failure["code"]), value.Text(failure["message"]))
		}
		if output, said := script["ok"]; said {
			return output, nil
		}
		return map[string]any{"session_id": "sess-1", "reply": "pong", "completed": true}, nil
	}, func(frame any) bool {
		response = frame
		return true
	})
	return map[string]any{"response": response, "chat_input": got}
}

// value writes the input with all members that the contract demands.
func (i Input) value() map[string]any {
	value := map[string]any{
		"agent": i.Agent, "message": i.Message, "history": lines(i.History), "session_id": nullable(i.SessionID),
		"run_id": nullable(i.RunID), "attachments": i.Attachments, "client_context": i.ClientContext,
	}
	maps.Copy(value, i.Extra)
	if len(i.Continuations) > 0 {
		value["input_messages"] = i.Continuations
	}
	if i.TokenStreaming != nil {
		value["token_streaming"] = *i.TokenStreaming
	}
	return value
}

func lines(history []Line) []any {
	list := make([]any, len(history))
	for i, line := range history {
		list[i] = map[string]any{"role": line.Role, "content": line.Content}
	}
	return list
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

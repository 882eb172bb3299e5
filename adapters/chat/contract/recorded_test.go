package contract

import (
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
			return DeltaFrame("task-1", recordedDelta(c.Object())), nil
		case "task":
			return TaskOf(recordedOutput(c.Object())), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

// recordedDelta reads a delta whose members may be of any type.
func recordedDelta(given map[string]any) Delta {
	index, _ := value.Count(given["index"])
	return Delta{
		Kind: DeltaKind(value.Scalar(given["type"])), Text: value.Scalar(given["text"]), ToolCallID: value.Scalar(given["tool_call_id"]),
		ToolName: value.Scalar(given["tool_name"]), Index: int(index),
	}
}

// recordedOutput reads a chat output whose members may be missing or of any type; it is completed unless it says no.
func recordedOutput(given map[string]any) Output {
	completed, said := given["completed"]
	return Output{
		RunID: value.Scalar(given["run_id"]), SessionID: value.Scalar(given["session_id"]), Reply: value.Scalar(given["reply"]),
		Completed: !said || value.Truthy(completed),
	}
}

// playDispatch answers with the frames of the contract, in the place of an agent that says what the script says.
func playDispatch(input map[string]any) map[string]any {
	request, refused := ReadRequest(value.Scalar(input["agent_id"]), []byte(value.EncodeText(input["body"])))
	if refused != nil {
		return map[string]any{"response": refused.Frame(), "chat_input": nil}
	}

	script := value.Assoc(input["handler"])
	output, is := value.Object(script["ok"])
	if !is {
		output = map[string]any{"session_id": "sess-1", "reply": "pong", "completed": true}
	}
	output["run_id"] = request.Input.RunID
	response := ResultFrame(request.ID, TaskOf(recordedOutput(output)))
	if failure, is := value.Object(script["error"]); is {
		response = ErrorFrame(request.ID, InternalError, value.Text(failure["message"]))
	}
	return map[string]any{"response": response, "chat_input": request.Input.value()}
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

package chat

import (
	"context"
	"fmt"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
)

func TestRecordedCases(t *testing.T) {
	fixturetest.Run(t, "jsonrpc-chat", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "dispatch":
			return playDispatch(context.Background(), c.Object()), nil
		case "delta":
			return DeltaFrame("task-1", c.Object()), nil
		case "task":
			return TaskOf(c.Object()), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

// playDispatch answers as the endpoint does and says what the handler got.
func playDispatch(ctx context.Context, input map[string]any) map[string]any {
	var got, response any
	handlers := &Handlers{}
	handlers.Register(10, "", func(_ context.Context, turn Input, _ Emit) (any, error) {
		got = turn.Value()
		return scripted(envelope.Assoc(input["handler"]))
	})
	request, refused := ReadRequest(envelope.Scalar(input["agent_id"]), []byte(envelope.EncodeText(input["body"])))
	if refused != nil {
		response = refused.Frame()
	} else {
		Dispatcher{Handlers: handlers}.Answer(ctx, request, func(frame map[string]any) bool {
			response = frame
			return true
		})
	}
	return map[string]any{"response": response, "chat_input": got}
}

func scripted(script map[string]any) (any, error) {
	if failure, is := envelope.Object(script["error"]); is {
		return nil, refuse(envelope.Text(failure["code"]), envelope.Text(failure["message"]))
	}
	if output, is := script["ok"]; is {
		return output, nil
	}
	return map[string]any{"session_id": "sess-1", "reply": "pong", "completed": true}, nil
}

package llm

import (
	"context"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// submitted gives what a program outside made of a call; nil while it is at work, or when the request was never stored,
// because the process died before.
func (j *job) submitted(ctx context.Context, waiting *Waiting) (map[string]any, error) {
	if j.turn.Requests == nil {
		return map[string]any{"success": false, "error": "The tool cannot be used any more.", "error_type": "tool_unavailable"}, nil
	}
	stored, err := j.turn.Requests.Request(ctx, value.Text(waiting.Request["request_id"]))
	if err != nil || stored == nil {
		return nil, err //nolint:wrapcheck // a fault already
	}
	result, ended, err := request.Outcome(stored)
	if err != nil {
		return nil, unusable(err)
	}
	if !ended {
		return nil, nil
	}
	given := map[string]any{"success": result["success"], "metadata": result["metadata"], "tool_name": result["tool_name"]}
	for _, member := range []string{"result", "error"} {
		if body, has := result[member]; has {
			given[member] = body
		}
	}
	j.remember(waiting.Request, given)
	return given, nil
}

// remember keeps the result of a tool that may be called once for its next equal call.
func (j *job) remember(asked, result map[string]any) {
	key := tool.RepeatKey(tool.Call{Name: value.Text(asked["tool_name"]), Parameters: value.Assoc(asked["parameters"])})
	if _, once := j.note.Claims[key]; once {
		j.note.claim(key, tool.NormalizeResult(result, value.Text(asked["tool_name"])))
	}
}

// askedOutside is what a run waits for whose approved call a program outside executes; nil when the call has its result.
func (j *job) askedOutside(waiting *Waiting, result map[string]any) *Waiting {
	raw, waits := tool.PendingRequest(result, tool.RequestDefaults{
		ToolName: waiting.ToolName, CallID: waiting.CallID, Context: map[string]any{"run_id": j.turn.ID},
	})
	if !waits || j.turn.Requests == nil {
		return nil
	}
	asked, err := request.Normalize(raw)
	if err != nil {
		return nil
	}
	return &Waiting{Status: envelope.StatusRuntimeToolPending, ToolName: waiting.ToolName, CallID: waiting.CallID, Request: asked}
}

// distinct gives calls with an id that the transcript has already another one: some servers count from 0 in every
// answer, and a result must not be taken for that of an earlier call.
func distinct(calls []call, transcript []envelope.Envelope) {
	known := map[string]bool{}
	for i := range transcript {
		if transcript[i].Type == envelope.TypeToolCall {
			known[transcript[i].ToolCallID()] = true
		}
	}
	for i := range calls {
		if known[calls[i].id] {
			calls[i].id = callID("")
		}
		known[calls[i].id] = true
	}
}

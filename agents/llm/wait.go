package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/normalized"
	"inbox/policypart"
)

// CodeApproval is the code of the policy part with which a run waits for a person's decision about a tool.
const CodeApproval = "approval:required"

// DataApproval is the member of that part's data: {"action_id","tool_name","tool_call_id"}.
const DataApproval = "dev.mentionable.approval"

// wait keeps the run and asks for what it waits for.
func (j *job) wait(ctx context.Context, result map[string]any, status string) error {
	transcript, err := envelope.NormalizeMany(result["messages"])
	if err != nil {
		return unusable(err)
	}

	waiting := waitingFor(result, transcript, status)
	var added []envelope.Envelope
	if offer, is := j.asks(waiting.ToolName); is && status == envelope.StatusRuntimeToolPending {
		added = j.gather(ctx, transcript, waiting, offer)
	}

	j.waits(waiting, len(added)+1)
	j.keepResult(ctx) // with the note: the next run takes it up and has no result of its own for this part
	if err := j.pause(ctx, transcript, added, waiting); err != nil {
		return err
	}

	return j.park(waiting)
}

// waitingFor reads what a run waits for out of its result.
func waitingFor(result map[string]any, transcript []envelope.Envelope, status string) *Waiting {
	waiting := &Waiting{Status: status}
	if status == envelope.StatusRuntimeToolPending {
		waiting.Request = value.Assoc(result["runtime_tool_pending"])
	} else {
		waiting.Request = value.Assoc(result["approval_required"])
	}

	for _, message := range slices.Backward(transcript) {
		if message.Type == envelope.TypeToolCall {
			waiting.ToolName, waiting.CallID = message.ToolName(), message.ToolCallID()
			break
		}
	}
	return waiting
}

// pause saves a run that waits. Without memory the next run begins anew.
func (j *job) pause(ctx context.Context, transcript, added []envelope.Envelope, waiting *Waiting) error {
	if j.turn.Memory == nil {
		return nil
	}
	messages, has := since(transcript)
	if !has {
		return unusable(errors.New("the transcript of a run that waits lost its request"))
	}
	j.note.Messages, j.note.Waiting = append(withoutPending(messages, waiting.CallID), added...), waiting
	return j.save(ctx)
}

// withoutPending leaves the call as the last word: its result comes when someone decided.
func withoutPending(messages []envelope.Envelope, callID string) []envelope.Envelope {
	return slices.DeleteFunc(slices.Clone(messages), func(message envelope.Envelope) bool {
		return message.Type == envelope.TypeApprovalRequired ||
			message.Type == envelope.TypeToolResult && message.ToolCallID() == callID
	})
}

// park answers that the run waits.
func (j *job) park(waiting *Waiting) error {
	if waiting.Status == WaitsForAgents {
		return j.dispatch(waiting)
	}

	if waiting.Status == envelope.StatusRuntimeToolPending && j.turn.Requests != nil {
		if err := j.turn.Requests.Await(waiting.Request); err != nil {
			return unusable(err)
		}
	}

	response := normalized.Response{Status: normalized.StatusInputRequired, Metadata: j.metadata(waiting.Status)}
	text := ""
	if waiting.Status == envelope.StatusApprovalRequired {
		response.Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: demand(waiting, j.tools.Resolve(waiting.ToolName))}}
	} else if _, shown := j.answer.calls[waiting.CallID]; !shown {
		text = "The agent waits for the result of " + j.tools.Resolve(waiting.ToolName) + "."
	}

	j.answer.close(response, text)
	return nil
}

// demand is the policy part of a tool that needs approval. An approver reads its canonical name, not the one for models.
func demand(waiting *Waiting, name string) *policypart.Part {
	summary := strings.TrimSpace(value.Text(waiting.Request["content"]))
	if summary == "" {
		summary = fmt.Sprintf("Before the agent uses %s, an approver must agree.", quote(name))
	}

	payload := value.Assoc(waiting.Request["payload"])
	asked := map[string]any{"action_id": value.Text(payload["action_id"]), "tool_name": name, "tool_call_id": waiting.CallID}
	if preview, is := value.Object(payload["preview"]); is { // the call itself, without its secrets
		asked["preview"] = preview["parameters"]
	}
	data := value.EncodeText(asked)

	return &policypart.Part{
		Kind: policypart.ConsentRequired, Code: CodeApproval, Title: "Approval needed", Message: firstRunes(summary, 2000),
		Data: map[string]json.RawMessage{DataApproval: json.RawMessage(data)},
	}
}

// settle puts the result of what a run waited for into the transcript.
func (j *job) settle(ctx context.Context) (waits bool, err error) {
	waiting := j.note.Waiting
	if waiting.Status == WaitsForAgents {
		return j.answered(ctx, waiting)
	}

	payload := value.Assoc(waiting.Request["payload"])
	j.toolBegins(map[string]any{"tool_call_id": waiting.CallID, "parameters": value.Assoc(payload["preview"])["parameters"]})
	result, err := j.settled(ctx, waiting)
	if err != nil {
		return false, err
	}
	if result == nil {
		return true, nil
	}

	result = tool.NormalizeResult(result, waiting.ToolName)
	if offer, is := j.asks(waiting.ToolName); is && value.Text(result["status"]) == tool.StatusPending { // approved, and now it is asked
		waiting.Request = map[string]any{"parameters": value.Assoc(payload["apply_input"])["parameters"]}
		j.gather(ctx, j.note.Messages, waiting, offer)
		j.waits(waiting, 1)
		return true, j.save(ctx)
	}
	if asked := j.askedOutside(waiting, result); asked != nil {
		j.note.Waiting = asked
		return true, j.save(ctx)
	}

	j.result(waiting.CallID, waiting.ToolName, result)
	if files := value.Assoc(result["metadata"])[request.FilesKey]; files != nil && waiting.Status == envelope.StatusRuntimeToolPending {
		j.note.Messages[len(j.note.Messages)-1].Metadata[request.FilesKey] = files // of the server, other metadata is the tool's
	}
	j.note.Waiting = nil
	return false, j.save(ctx)
}

// result ends a call of the transcript that was waited for.
// It is kept as short as one that came at once.
func (j *job) result(callID, name string, given map[string]any) {
	result := tool.NormalizeResult(given, name)
	j.toolEnded(callID, name, result)
	if j.hooked.Completion {
		j.note.Unjudged = append(j.note.Unjudged, callID)
	}
	j.hooked.observe("tool_result", map[string]any{"tool_name": name, "tool_call_id": callID, "success": succeeded(result)})

	if cut, err := loop.NewByteTruncator(maxResultBytes).Truncate(result, name, nil); err == nil && cut.Truncated {
		result = cut.Result
	}

	text := value.EncodeText(result["result"])
	if !succeeded(result) {
		text = value.Text(result["error"])
	}
	j.note.Messages = append(j.note.Messages, envelope.NewToolResult(text, name, result, map[string]any{"tool_call_id": callID}))
}

// settled asks for the result; without anyone to ask, the resolution of the demand is all there is.
func (j *job) settled(ctx context.Context, waiting *Waiting) (map[string]any, error) {
	if waiting.Status == envelope.StatusRuntimeToolPending {
		return j.submitted(ctx, waiting)
	}
	resolution := j.turn.Message.PolicyResolution
	if resolution != nil && resolution.Outcome == policypart.OutcomeGranted && j.forbidden[waiting.ToolName] { // an approval is no right
		return map[string]any{"success": false, "error": "The tool may not be used any more.", "error_type": "action_forbidden"}, nil
	}
	if j.agent.options.Approvals != nil {
		return j.agent.options.Approvals.Settle(ctx, j.turn, *waiting) //nolint:wrapcheck // a fault already
	}

	switch {
	case resolution == nil, approvedAction(resolution) != value.Text(value.Assoc(waiting.Request["payload"])["action_id"]):
		return nil, nil
	case resolution.Outcome == policypart.OutcomeGranted:
		return map[string]any{"success": true, "result": "It was approved. Call the tool once more with the same parameters."}, nil
	}

	return map[string]any{"success": false, "error": "It was not approved.", "error_type": "approval_" + resolution.Outcome}, nil
}

// submitted returns what a program outside made of a call; nil while it is at work, or when the request was never stored,
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

	given := map[string]any{
		"success": result["success"], "metadata": result["metadata"], "tool_name": result["tool_name"], "runtime": waiting.Request["runtime"],
	}
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

// distinct returns calls with an id that the transcript has already another one: some servers count from 0 in every
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

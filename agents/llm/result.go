package llm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// keepResult hands the conversation result of the run over, once.
func (j *job) keepResult(ctx context.Context) {
	if j.turn.KeepResult == nil || j.persisted == nil || j.resultKept {
		return
	}

	document, err := j.documentOf(j.persisted)
	if err != nil {
		slog.WarnContext(ctx, "the conversation result of a run cannot be written", "turn", j.turn.ID, "error", err)
		return
	}

	j.resultKept = true
	j.turn.KeepResult(document)
}

func (j *job) documentOf(result map[string]any) ([]byte, error) {
	kept, err := envelope.NormalizeResult(j.replayable(result)) // the tools that were added are observed, too
	if err != nil {
		return nil, fmt.Errorf("normalize: %w", err)
	}
	return fitting(kept)
}

// records are what a conversation result says of calls that ended.
type records struct{ executed, audits, events []any }

// callsOf writes the records of calls of earlier runs, which the transcript has and the loop of this run has not: their runs were lost, or
// a program outside, another agent or a person ended them between two runs. With them the newest result of a turn has all of its calls.
func (j *job) callsOf(transcript []envelope.Envelope) (calls records) {
	made := map[string]envelope.Envelope{}
	for _, message := range transcript {
		id := message.ToolCallID()
		if message.Type == envelope.TypeToolCall {
			made[id] = message
		}
		call, has := made[id]
		if message.Type == envelope.TypeToolResult && has && id != "" && call.ToolName() != "" && message.Payload["status"] != request.StatusPending {
			calls.add(j.tools, call, message)
			delete(made, id)
		}
	}
	return calls
}

// add writes the records of one call as the loop does (agent runtime contract, sections 3.3 and 4.7).
func (r *records) add(set tool.Declarations, call, ended envelope.Envelope) {
	declaration, _ := set.Get(set.Resolve(call.ToolName()))
	prepared := tool.Prepared{
		ModelName: call.ToolName(), Declaration: declaration, Redacted: value.Assoc(call.Payload["parameters"]),
		ParametersSHA256: value.Text(call.Metadata["parameters_sha256"]),
	}
	if prepared.ParametersSHA256 == "" {
		prepared.ParametersSHA256 = tool.Hash(prepared.Redacted)
	}

	turn, _ := value.Integer(call.Payload["turn"])
	if turn < 0 { // see ofEarlierRuns
		turn += earlierTurns
	}

	result := maps.Clone(ended.Payload)
	result["tool_name"] = set.Resolve(call.ToolName())
	id, success := call.ToolCallID(), succeeded(result)
	status := map[bool]string{true: "success", false: "error"}[success]

	record := func(more map[string]any) map[string]any {
		entry := map[string]any{"tool_name": call.ToolName(), "tool_call_id": id, "turn_count": turn}
		maps.Copy(entry, more)
		return entry
	}

	executed := record(prepared.Exposure())
	executed["result"] = result
	if runtime := value.Assoc(result["runtime"]); len(runtime) > 0 {
		executed["runtime"] = runtime
	}

	called := prepared.Exposure()
	called["status"] = "called"
	rejected := rejections[value.Text(value.Assoc(result["metadata"])["error_type"])]
	r.executed = append(r.executed, executed)
	r.audits = append(r.audits, tool.AuditEvent(tool.Outcome{Prepared: prepared, CallID: id, Turn: int(turn), Result: result}))
	r.events = append(r.events, record(map[string]any{"type": "tool_call", "status": "called", "metadata": called}),
		record(map[string]any{"type": "tool_result", "status": status, "metadata": map[string]any{
			"status": status, "success": success, "rejected": rejected,
		}}))
}

// replayable is a result as it may be kept with the turn. The history before the request is left out: it is that of other turns, which
// are erased for themselves. Parameters stand in it as in the audit (agent runtime contract, section 4.7), those of a call that waits, too.
func (j *job) replayable(result map[string]any) map[string]any {
	kept := maps.Clone(result)
	messages, earlier := j.ownMessages(result["messages"])
	kept["messages"] = messages
	for member, before := range map[string][]any{
		"tool_execution_results": j.before.executed, "tool_audit_events": j.before.audits, "tool_events": j.before.events,
	} {
		of, _ := value.List(result[member])
		kept[member] = append(append([]any{}, before...), of...)
	}
	delete(kept, "run_outcome") // computed anew

	if pending, is := value.Object(result["runtime_tool_pending"]); is {
		kept["runtime_tool_pending"] = j.redactedRequest(pending)
	}
	if asked, is := value.Object(result["approval_required"]); is {
		kept["approval_required"] = j.redactedApproval(asked)
	}

	about := map[string]any{
		"run_id": j.turn.ID, "attempt": j.turn.Attempt, "agent": j.turn.Agent, "model": j.agent.options.Model,
		"message_id": j.turn.Message.ID, "thread_id": j.turn.Message.ThreadID, "history_messages_left_out": earlier,
		"budgets": budgetsOf(j.budgetsOfRun), "usage_of_message": maps.Clone(j.note.Usage),
	}
	maps.Copy(about, value.Assoc(result["request_metadata"]))
	kept["request_metadata"] = about
	return kept
}

// budgetsOf says how far the budgets of a run were used, as a provider's turn is told it (agent runtime contract, section 9).
func budgetsOf(budgets []*loop.Budget) map[string]any {
	used := make(map[string]any, len(budgets))
	for _, budget := range budgets {
		if budget != nil {
			used[budget.Name()] = map[string]any{"current": budget.Current(), "limit": budget.Ceiling()}
		}
	}
	return used
}

// ownMessages returns the messages of the turn, from its request on, and how many stood before them. A transcript that lost its request
// has none that are known to be of the turn.
func (j *job) ownMessages(given any) (own []any, earlier int) {
	list, _ := value.List(given)
	at := slices.IndexFunc(list, func(message any) bool {
		return marked(value.Assoc(value.Assoc(message)["metadata"]), markRequest)
	})
	if at < 0 {
		return []any{}, len(list)
	}

	own = make([]any, 0, len(list)-at)
	for _, message := range list[at:] {
		own = append(own, j.redactedMessage(value.Assoc(message)))
	}
	return own, at
}

// redactedMessage copies a message where it holds what someone is asked outside of the run.
func (j *job) redactedMessage(message map[string]any) map[string]any {
	payload := value.Assoc(message["payload"])
	kind := envelope.Type(value.Text(message["type"]))
	switch number, is := value.Integer(payload["turn"]); {
	case kind == envelope.TypeApprovalRequired:
		return j.redactedApproval(message)
	case kind == envelope.TypeToolResult && payload["status"] == request.StatusPending:
		asked := j.redactedRequest(value.Assoc(payload["result"]))
		message, payload = maps.Clone(message), maps.Clone(payload)
		payload["result"] = asked
		message["payload"], message["content"] = payload, value.EncodeText(asked)
	case kind == envelope.TypeToolCall && is && number < 0: // see ofEarlierRuns
		message, payload = maps.Clone(message), maps.Clone(payload)
		payload["turn"] = number + earlierTurns
		message["payload"] = payload
	}
	return message
}

func (j *job) redactedRequest(asked map[string]any) map[string]any {
	asked = maps.Clone(asked)
	asked["parameters"] = j.redacted(value.Text(asked["tool_name"]), asked["parameters"])
	return asked
}

func (j *job) redactedApproval(asked map[string]any) map[string]any {
	payload := maps.Clone(value.Assoc(asked["payload"]))
	if apply, is := value.Object(payload["apply_input"]); is {
		apply = maps.Clone(apply)
		name := value.Text(apply["tool_name"])
		apply["parameters"] = j.redacted(name, apply["parameters"])
		payload["apply_input"] = apply
	}

	asked = maps.Clone(asked)
	asked["payload"] = payload
	return asked
}

func (j *job) redacted(name string, parameters any) map[string]any {
	declaration, _ := j.tools.Get(j.tools.Resolve(name))
	return tool.RedactParameters(value.Assoc(parameters), declaration)
}

// What is left out of a result that is too large, one after the other, until it fits.
const (
	leftResults  = "tool_execution_results[].result.result"
	leftContents = "messages[].content"
	leftMessages = "messages"
	leftRest     = "tool_execution_results, tool_events, events"
)

// fitting writes a result in at most agents.MaxResult bytes. What is too large loses the bodies of its tools' results first, then what was
// said, then its messages; its metadata.left_out says what, and the result stays a valid one.
func fitting(result map[string]any) ([]byte, error) {
	document, err := value.Encode(result)
	if err != nil || len(document) <= agents.MaxResult {
		return document, err //nolint:wrapcheck // told by the caller
	}

	whole := len(document)
	result = maps.Clone(result)
	var left []any
	for _, step := range []struct {
		what  string
		leave func(map[string]any)
	}{
		{leftResults, withoutResults}, {leftContents, withoutContents},
		{leftMessages, func(result map[string]any) { result["messages"] = []any{} }},
		{leftRest, func(result map[string]any) {
			result["tool_execution_results"], result["tool_events"], result["events"] = []any{}, []any{}, []any{}
		}},
	} {
		left = append(left, step.what)
		step.leave(result)
		metadata := maps.Clone(value.Assoc(result["metadata"]))
		metadata["left_out"] = map[string]any{"members": left, "original_bytes": whole, "limit_bytes": agents.MaxResult}
		result["metadata"] = metadata

		if document, err = value.Encode(result); err != nil || len(document) <= agents.MaxResult {
			return document, err //nolint:wrapcheck // told by the caller
		}
	}
	return nil, fmt.Errorf("it has %d bytes without its messages and results", len(document))
}

// instead stands in the place of what was left out.
func instead(of any) map[string]any {
	return map[string]any{"left_out": true, "original_bytes": len(value.EncodeText(of))}
}

func withoutResults(result map[string]any) {
	entries, _ := value.List(result["tool_execution_results"])
	shortened := make([]any, len(entries))
	for i, entry := range entries {
		executed := maps.Clone(value.Assoc(entry))
		outcome := maps.Clone(value.Assoc(executed["result"]))
		if body, has := outcome["result"]; has {
			outcome["result"] = instead(body)
		}
		executed["result"], shortened[i] = outcome, executed
	}
	result["tool_execution_results"] = shortened
}

// withoutContents keeps who said something of which kind: the ids and hashes of calls are in metadata.
func withoutContents(result map[string]any) {
	messages, _ := value.List(result["messages"])
	shortened := make([]any, len(messages))
	for i, message := range messages {
		short := maps.Clone(value.Assoc(message))
		payload := instead(short["payload"])
		for _, member := range []string{"tool_name", "success", "turn", "status"} {
			if known, has := value.Assoc(short["payload"])[member]; has {
				payload[member] = known
			}
		}
		short["content"], short["payload"], shortened[i] = "", payload, short
	}
	result["messages"], result["final_content"] = shortened, ""
	for _, member := range []string{"runtime_tool_pending", "approval_required"} {
		if asked, has := result[member]; has {
			result[member] = instead(asked)
		}
	}
}

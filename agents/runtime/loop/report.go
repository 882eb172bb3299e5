package loop

import (
	"context"
	"maps"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// truncate shortens a result; the event has the whole one, the record of the run has not.
func (b *batch) truncate(call *toolCall, result map[string]any) (map[string]any, error) {
	if b.options.Truncator == nil {
		return result, nil
	}

	var truncation Truncation
	err := guard("tool result truncator", func() (err error) {
		truncation, err = b.options.Truncator.Truncate(result, call.name, call.toolContext)
		return err
	})
	if err != nil || !truncation.Truncated || truncation.Result == nil {
		return result, err
	}

	stored := b.facts(call, nil)
	for name, value := range truncation.Metadata {
		if _, own := stored[name]; !own {
			stored[name] = value
		}
	}

	payload := maps.Clone(stored)
	payload["original_result"] = result
	b.emit("tool_result_truncated", payload)
	b.record("tool_result_truncated", stored)
	return truncation.Result, nil
}

// report writes a result down everywhere: events, execution results, audit, transcript.
func (b *batch) report(ctx context.Context, call *toolCall, result map[string]any) {
	success := value.Truthy(result["success"])
	status := map[bool]string{true: "success", false: "error"}[success]
	b.emit("tool_result", b.facts(call, map[string]any{"success": success}))
	b.addToolEvent("tool_result", call, map[string]any{
		"status": status, "success": success, "rejected": call.decision.Action == tool.ActionReject,
	})

	executed := map[string]any{
		"tool_name": call.name, "tool_call_id": call.id, "result": result, "parameters": call.exposure["parameters"],
		"parameters_sha256": call.prepared.ParametersSHA256, "parameters_redacted": true, "turn_count": b.turn,
	}

	if runtime := value.Assoc(result["runtime"]); len(runtime) > 0 {
		executed["runtime"] = runtime
	}

	b.diagnose(ctx, call, result, executed)
	b.toolResults = append(b.toolResults, executed)
	b.auditEvents = append(b.auditEvents, tool.AuditEvent(tool.Outcome{
		Prepared: call.prepared, CallID: call.id, Turn: b.turn, Result: result,
	}))

	b.append(envelope.NewToolResult(resultContent(result), call.name, result, map[string]any{"tool_call_id": call.id}))
}

func resultContent(result map[string]any) string {
	if value.Truthy(result["success"]) {
		if body, has := result["result"]; has && body != nil {
			return value.EncodeText(body)
		}
		return "[]"
	}
	if text, is := result["error"].(string); is {
		return text
	}
	return "Tool execution failed."
}

// diagnose asks for additions to the records of a result.
func (b *batch) diagnose(ctx context.Context, call *toolCall, result, executed map[string]any) {
	if b.options.Diagnostics == nil {
		return
	}

	about := b.facts(call, map[string]any{
		"turn_context": b.turnContext, "tool_declaration": call.prepared.Declaration.Object(), "result": result,
		"success": value.Truthy(result["success"]), "parameters_sha256": call.prepared.ParametersSHA256,
	})

	var found map[string]any
	err := guard("diagnostics", func() (err error) {
		found, err = b.options.Diagnostics(ctx, about)
		return err
	})
	if err != nil || len(found) == 0 {
		return
	}

	metadata := b.facts(call, found)
	executed["diagnostics"] = found
	b.record("tool_result_diagnostics", metadata)
	b.emit("tool_result_diagnostics", metadata)
}

// nudge tells the model when it repeats a call that fails in the same way.
func (b *batch) nudge(call *toolCall, result map[string]any) error {
	tracker := b.options.FailureTracker
	if tracker == nil || value.Truthy(result["success"]) {
		return nil
	}

	signature := NewFailureSignature(call.name, call.parameters, result)
	var message string
	var repeats, threshold int
	err := guard("identical failure tracker", func() (err error) {
		message, err = tracker.Record(signature, b.turnContext)
		repeats, threshold = tracker.Repeats(), tracker.Threshold()
		return err
	})
	if err != nil || value.Trim(message) == "" {
		return err
	}

	payload := signature.payload(b.turn, repeats, threshold, message)
	b.emit("identical_failure_nudged", payload)
	b.append(envelope.AssistantText(message, map[string]any{
		"type": "identical_failure_nudge", "identical_failure_signature": payload,
	}))

	return nil
}

// consult asks the completion policy about a result. A complete conversation still executes the rest of its batch, for
// every call needs its result.
func (b *batch) consult(ctx context.Context, call *toolCall, result map[string]any) error {
	decision, err := b.judge(ctx, ToolResult{
		ToolName: call.name, Declaration: call.prepared.Declaration, Result: result, Context: b.turnContext, Turn: b.turn,
	})
	if err != nil || b.options.CompletionPolicy == nil {
		return err
	}

	about := map[string]any{
		"tool_name": call.name, "turn": b.turn, "message": decision.Message, "context": value.Filled(decision.Context),
	}
	switch message := value.Trim(decision.Message); {
	case decision.Complete:
		b.complete = true
		if !b.stopRecorded {
			b.record("completion_policy_stop", about)
			b.stopRecorded = true
		}
	case !b.complete && message != "":
		about["message"] = message
		b.append(envelope.UserText(message, map[string]any{
			"type": "completion_policy_continue", "completion_policy_context": about,
		}))
		b.record("completion_policy_continue", about)
		b.emit("completion_policy_continue", about)
	}

	return nil
}

// checkSpin shows the calls of the batch to the detector, after they were executed.
func (r *run) checkSpin() error {
	detector := r.options.SpinDetector
	if detector == nil {
		return nil
	}
	return guard("spin detector", func() error {
		for _, signature := range r.spins {
			stalled, err := detector.Record(signature, r.turnContext)
			if err != nil {
				return err
			}
			if stalled {
				r.stalled = signature.payload(r.turn, detector.Repeats(), detector.Threshold())
				r.emit("loop_stalled", r.stalled)
				return nil
			}
		}
		return nil
	})
}

// gateCompletion keeps a model without tool calls from ending a run whose rules are not met.
func (r *run) gateCompletion(result map[string]any) (forced bool) {
	if !r.complete || len(entries(result["tool_calls"])) > 0 || r.exceeded != "" || r.stalled != nil {
		return false
	}

	refusal := r.gate.checkCompletion(r.messages)
	if refusal == nil {
		return false
	}

	const blocked = "tool_call_gate_completion_blocked"
	r.complete = false
	r.append(envelope.UserText(refusal.reason, map[string]any{"type": blocked, "tool_call_gate": refusal.context}))
	r.record(blocked, refusal.context)
	r.emit(blocked, refusal.context)
	return true
}

package loop

import (
	"context"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
)

const statusContention = "transcript_lock_contention"

// filled keeps an absent list from being written as null.
func filled(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// snapshot is the result of a failed run so far.
func (r *run) snapshot(more map[string]any) map[string]any {
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": filled(r.toolResults),
		"tool_events": filled(r.toolEvents), "tool_audit_events": filled(r.auditEvents), "events": filled(r.events),
		"status": envelope.StatusFailed, "completed": false, "turn_count": r.turn,
		"final_content": finalContent(r.messages), "usage": r.usage, "request_metadata": r.requestMeta,
	}
	maps.Copy(result, more)
	return result
}

// failure ends a run whose turn failed. The event completed is not for it.
func (r *run) failure(ctx context.Context) (map[string]any, error) {
	result, err := envelope.NormalizeResult(r.failed)
	if err != nil {
		return nil, err //nolint:wrapcheck // its errors are the contract's
	}
	_ = r.end(ctx, envelope.StatusFailed) // the failure of the turn is what counts
	r.persist(ctx, result)
	return result, nil
}

// runControlFailure is the result of a run that run control refused or could not finish.
func (r *run) runControlFailure(problem error, keep bool) (map[string]any, error) {
	message := publicText(problem)
	r.emit("failed", map[string]any{"error": message})
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": []any{}, "tool_events": []any{},
		"tool_audit_events": []any{}, "events": []any{}, "status": envelope.StatusFailed, "completed": false,
		"turn_count": 0, "final_content": finalContent(r.messages),
		"failure": map[string]any{
			"type": "run_control", "message": message, "code": errorCode(problem), "turn_count": 0,
		},
	}
	if keep {
		result["tool_execution_results"], result["tool_events"] = filled(r.toolResults), filled(r.toolEvents)
		result["tool_audit_events"], result["events"] = filled(r.auditEvents), filled(r.events)
	}
	return envelope.NormalizeResult(result) //nolint:wrapcheck // its errors are the contract's
}

// contention is the result of a run that found its session locked. The recorded runtime derives the outcome of this
// status as completed and natural; readers tell the refusal by the status and by the missing member completed.
func (r *run) contention(ctx context.Context) (map[string]any, error) {
	r.emit(statusContention, map[string]any{"session_id": r.options.SessionID})
	r.abandon(ctx)
	return envelope.NormalizeResult(map[string]any{ //nolint:wrapcheck // its errors are the contract's
		"messages": envelope.Values(r.messages), "tool_execution_results": []any{}, "events": []any{},
		"status": statusContention,
	})
}

// finish is steps 6 and 7 of section 3.2.
func (r *run) finish(ctx context.Context) (map[string]any, error) {
	result, err := envelope.NormalizeResult(r.result())
	if err != nil {
		return nil, err //nolint:wrapcheck // its errors are the contract's
	}
	if problem := r.end(ctx, envelope.RunControlStatus(result)); problem != nil {
		failed, err := r.runControlFailure(problem, true)
		r.persist(ctx, failed)
		return failed, err
	}
	r.persist(ctx, result)
	r.emit("completed", map[string]any{
		"turn": r.turn, "message_count": len(r.messages), "tool_results": len(r.toolResults),
	})
	return result, r.stopCause
}

func (r *run) result() map[string]any {
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": filled(r.toolResults),
		"tool_events": filled(r.toolEvents), "tool_audit_events": filled(r.auditEvents), "events": filled(r.events),
		"turn_count": r.turn, "final_content": finalContent(r.messages), "metadata": r.metadata, "usage": r.usage,
		"request_metadata": r.requestMeta, "provider_diagnostics": filled(r.diagnostics),
		"structured_output_diagnostics": r.outputStatus, "completed": true,
	}
	if r.outputStatus == nil {
		result["structured_output_diagnostics"] = map[string]any{}
	}
	if r.output != nil {
		result["structured_output"] = *r.output
	}
	r.overlay(result)
	return result
}

// overlay writes why a run stopped. The last reason names the status; the others stay readable beside it.
func (r *run) overlay(result map[string]any) {
	stop := func(happened bool, status, member string, value any) {
		if happened {
			result["status"], result[member], result["completed"] = status, value, false
		}
	}
	stop(r.exceeded != "", envelope.StatusBudgetExceeded, "budget", r.exceeded)
	stop(r.stalled != nil, envelope.StatusStalled, "stalled", r.stalled)
	stop(r.approval != nil, envelope.StatusApprovalRequired, "approval_required", r.approval)
	stop(r.pending != nil, envelope.StatusRuntimeToolPending, "runtime_tool_pending", r.pending)
	stop(r.interruption != nil, envelope.StatusInterrupted, "interrupted", r.interruption)
}

// persist keeps a transcript; the result does not depend on it.
func (r *run) persist(ctx context.Context, result map[string]any) {
	if r.options.Persister == nil {
		return
	}
	quietly(func() {
		_ = r.options.Persister.Persist(context.WithoutCancel(ctx), slices.Clip(r.messages), r.options.request(r.messages), result)
	})
}

// finalContent is the last thing that the assistant said.
func finalContent(messages []envelope.Envelope) string {
	for _, message := range slices.Backward(messages) {
		if message.Role == "assistant" && message.Type != envelope.TypeToolCall && message.Text() != "" {
			return message.Text()
		}
	}
	return ""
}

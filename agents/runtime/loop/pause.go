package loop

import (
	"context"
	"errors"
	"maps"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

const actionCancel = "cancel"

// interrupt is a cancellation from outside of the conversation (agent runtime contract, section 3.8).
type interrupt struct {
	message  envelope.Envelope
	metadata map[string]any
	silent   bool // the message is about this process and stays out of the transcript
}

// cancelled looks whether the run is to stop: by its context or by run control.
func (r *run) cancelled(ctx context.Context) *interrupt {
	if over(ctx) {
		return r.stoppedByContext(ctx)
	}
	if !r.controlled() {
		return nil
	}

	var asked bool
	err := guard("run control", func() (err error) {
		asked, err = r.options.Control.Cancelling(ctx, r.options.RunID)
		return err
	})
	if err != nil || !asked {
		return nil // who cannot say so has not asked
	}

	metadata := map[string]any{"type": "chat_run_interrupt", "run_id": r.options.RunID, "session_id": r.options.SessionID}
	said := maps.Clone(metadata)
	said["interrupt_action"] = actionCancel
	message := envelope.UserText("Cancel this run.", said)

	metadata["turn"], metadata["action"], metadata["message"] = r.turn, actionCancel, message.Value()
	r.emit("interrupt_received", metadata)
	return &interrupt{message: message, metadata: metadata}
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// stoppedByContext says why this process stops the run. No one in the conversation said anything, so the transcript
// gets no message.
func (r *run) stoppedByContext(ctx context.Context) *interrupt {
	reason := "context_cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = "deadline_exceeded"
	}
	r.stopCause = context.Cause(ctx)
	metadata := map[string]any{"type": "run_stopped", "reason": reason, "turn": r.turn, "action": actionCancel}
	r.emit("interrupt_received", metadata)
	return &interrupt{metadata: metadata, silent: true}
}

// stopped looks for a cancellation and records it.
func (r *run) stopped(ctx context.Context) bool {
	found := r.cancelled(ctx)
	if found == nil {
		return false
	}
	if !found.silent {
		r.append(found.message)
	}
	r.record("interrupt_received", found.metadata)
	r.interruption = found.metadata
	return true
}

// awaitTool pauses the run for a tool that someone outside executes (agent runtime contract, sections 3.3 and 5).
func (b *batch) awaitTool(ctx context.Context, call *toolCall, result map[string]any) (waits bool, err error) {
	raw, waits := tool.PendingRequest(result, tool.RequestDefaults{
		ToolName: call.name, CallID: call.id, Parameters: call.parameters, Context: b.turnContext,
	})
	if !waits {
		return false, nil
	}

	pending, err := request.Normalize(raw)
	if err != nil {
		return true, err //nolint:wrapcheck // its errors are the contract's
	}

	metadata := maps.Clone(value.Assoc(pending["metadata"]))
	metadata["turn_count"] = b.turn
	pending["metadata"] = metadata

	if pending, err = b.keepRequest(ctx, call, pending); err != nil {
		return true, err
	}

	b.pending, b.complete = pending, true
	b.append(envelope.NewToolResult(value.EncodeText(pending), call.name, map[string]any{
		"success": false, "status": request.StatusPending, "result": pending,
	}, map[string]any{"tool_call_id": call.id}))

	b.emit(request.StatusPending, b.facts(call, map[string]any{"request_id": pending["request_id"]}))
	b.addToolEvent(request.StatusPending, call, map[string]any{
		"status": request.StatusPending, "request_id": pending["request_id"],
	})

	return true, nil
}

func (b *batch) keepRequest(ctx context.Context, call *toolCall, pending map[string]any) (kept map[string]any, err error) {
	if b.options.RequestStore == nil {
		return pending, nil
	}
	err = guard("runtime tool request store", func() (err error) {
		kept, err = b.options.RequestStore.Create(ctx, pending, b.facts(call, map[string]any{"turn_context": b.turnContext}))
		return err
	})
	return kept, err
}

// awaitApproval pauses the run for a person's decision. An envelope that no approver could decide about is a failure of the
// tool, never a success.
func (b *batch) awaitApproval(call *toolCall, result map[string]any) (map[string]any, bool) {
	asked := value.Assoc(result["result"])
	if asked["type"] != string(envelope.TypeApprovalRequired) {
		return result, false
	}

	typed := maps.Clone(asked)
	for name, value := range map[string]any{"schema": envelope.Schema, "version": envelope.Version} {
		if typed[name] == nil {
			typed[name] = value
		}
	}

	message, err := envelope.Normalize(typed)
	if err != nil {
		return tool.ErrorResult(call.name, "Tool asked for approval with an invalid message.",
			map[string]any{"error_type": "invalid_approval_envelope"}, value.Assoc(result["runtime"])), false
	}

	b.approval, b.complete = asked, true
	b.append(message)
	b.emit(string(envelope.TypeApprovalRequired), b.facts(call, map[string]any{"action_id": message.Payload["action_id"]}))
	return result, true
}

package loop

import (
	"context"
	"errors"
	"maps"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// Actions of an interrupt (agent runtime contract, section 3.8).
const (
	ActionCancel   = "cancel"
	ActionRedirect = "redirect"
	ActionMessage  = "message"
)

// interrupt is a message from outside of the conversation (agent runtime contract, section 3.8).
type interrupt struct {
	message  envelope.Envelope
	metadata map[string]any
	action   string
	silent   bool // the message is about this process and stays out of the transcript
}

// checkInterrupted polls the interrupt source, then looks for a cancellation. It reports whether the run stops.
func (r *run) checkInterrupted(ctx context.Context) (stop bool, err error) {
	if over(ctx) {
		return r.stopped(ctx), nil
	}
	found, err := r.poll(ctx)
	if err != nil {
		return false, err
	}
	if found == nil {
		return r.stopped(ctx), nil
	}
	return r.accept(found), nil
}

// stopped looks for a cancellation. It reports whether the run stops.
func (r *run) stopped(ctx context.Context) bool {
	found := r.cancelled(ctx)
	return found != nil && r.accept(found)
}

// poll asks the interrupt source; nil is no interrupt.
func (r *run) poll(ctx context.Context) (*interrupt, error) {
	if r.options.Interrupts == nil {
		return nil, nil
	}

	var given any
	err := guard("interrupt source", func() (err error) {
		given, err = r.options.Interrupts.Poll(ctx, r.options.request(r.messages), r.turnContext)
		return err
	})
	if err != nil || given == nil {
		return nil, err
	}

	message, is := given.(envelope.Envelope)
	if !is {
		if _, is := value.Object(given); !is {
			r.emit("interrupt_ignored", map[string]any{"reason": "invalid_message", "turn": r.turn})
			return nil, nil
		}
		if message, err = envelope.Normalize(given); err != nil {
			return nil, err //nolint:wrapcheck // its errors are the contract's
		}
	}
	return r.interrupted(message), nil
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
		return nil // run control that cannot be read has asked for nothing
	}

	return r.interrupted(envelope.UserText("Cancel this run.", map[string]any{
		"type": "chat_run_interrupt", "interrupt_action": ActionCancel,
		"run_id": r.options.RunID, "session_id": r.options.SessionID,
	}))
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// stoppedByContext says why this process stops the run: as the interrupt source reports it, if it knows of a cancellation. Otherwise no
// one in the conversation said anything, and the transcript gets no message.
func (r *run) stoppedByContext(ctx context.Context) *interrupt {
	r.stopCause = context.Cause(ctx)
	if found, err := r.poll(context.WithoutCancel(ctx)); err == nil && found != nil {
		if found.action == ActionCancel {
			return found
		}
		r.accept(found)
	}

	reason := "context_cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = "deadline_exceeded"
	}
	metadata := map[string]any{"type": "run_stopped", "reason": reason, "turn": r.turn, "action": ActionCancel}
	r.emit("interrupt_received", metadata)
	return &interrupt{metadata: metadata, action: ActionCancel, silent: true}
}

// interrupted reads the action of an interrupt message and reports it to the observer.
func (r *run) interrupted(message envelope.Envelope) *interrupt {
	action := interruptAction(first(message.Metadata["interrupt_action"], message.Metadata["action"]))
	metadata := maps.Clone(message.Metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	delete(metadata, "interrupt_action")
	metadata["turn"], metadata["action"], metadata["message"] = r.turn, action, message.Value()
	r.emit("interrupt_received", metadata)
	return &interrupt{message: message, metadata: metadata, action: action}
}

func interruptAction(given any) string {
	switch action := strings.ToLower(value.Trim(value.Text(given))); action {
	case ActionCancel, ActionRedirect:
		return action
	}
	return ActionMessage
}

// accept records an interrupt. It reports whether the run stops.
func (r *run) accept(found *interrupt) (stop bool) {
	if !found.silent {
		r.append(found.message)
	}
	r.record("interrupt_received", found.metadata)
	if found.action == ActionCancel {
		r.interruption = found.metadata
	}
	return found.action == ActionCancel
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

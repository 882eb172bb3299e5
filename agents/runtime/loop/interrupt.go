package loop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

const actionCancel = "cancel"

// interrupt is a message from outside of the conversation (agent runtime contract, section 3.8).
type interrupt struct {
	message  envelope.Envelope
	metadata map[string]any
	action   string
	silent   bool // the message is about this process and stays out of the transcript
}

// poll asks the interrupt source.
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
	message, is := value.Object(given)
	if !is {
		r.emit("interrupt_ignored", map[string]any{"reason": "invalid_message", "turn": r.turn})
		return nil, nil
	}
	return r.interrupted(message)
}

// cancelled looks whether the run is to stop: by its context or by run control.
func (r *run) cancelled(ctx context.Context) (*interrupt, error) {
	if over(ctx) {
		return r.stoppedByContext(ctx), nil
	}
	if !r.controlled() {
		return nil, nil
	}
	var asked bool
	err := guard("run control", func() (err error) {
		asked, err = r.options.Control.Cancelling(ctx, r.options.RunID)
		return err
	})
	if err != nil || !asked {
		return nil, nil //nolint:nilerr // who cannot say so has not asked
	}
	return r.interrupted(map[string]any{
		"role": "user", "content": "Cancel this run.",
		"metadata": map[string]any{
			"type": "chat_run_interrupt", "interrupt_action": actionCancel,
			"run_id": r.options.RunID, "session_id": r.options.SessionID,
		},
	})
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// stoppedByContext says why this process stops the run. Nobody in the conversation said anything, so the transcript
// gets no message.
func (r *run) stoppedByContext(ctx context.Context) *interrupt {
	reason := "context_cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = "deadline_exceeded"
	}
	r.stopCause = context.Cause(ctx)
	metadata := map[string]any{"type": "run_stopped", "reason": reason, "turn": r.turn, "action": actionCancel}
	r.emit("interrupt_received", metadata)
	return &interrupt{metadata: metadata, action: actionCancel, silent: true}
}

func (r *run) interrupted(raw map[string]any) (*interrupt, error) {
	message, err := envelope.Normalize(raw)
	if err != nil {
		return nil, err
	}
	action := interruptAction(first(message.Metadata["interrupt_action"], message.Metadata["action"]))
	metadata := maps.Clone(message.Metadata)
	delete(metadata, "interrupt_action")
	metadata["turn"], metadata["action"], metadata["message"] = r.turn, action, message.Value()
	r.emit("interrupt_received", metadata)
	return &interrupt{message: message, metadata: metadata, action: action}, nil
}

func interruptAction(given any) string {
	action := strings.ToLower(value.Trim(value.Text(given)))
	if slices.Contains([]string{actionCancel, "redirect", "message"}, action) {
		return action
	}
	return "message"
}

// take records an interrupt; a cancelling one stops the run.
func (r *run) take(found *interrupt) (stop bool) {
	if !found.silent {
		r.append(found.message)
	}
	r.record("interrupt_received", found.metadata)
	if found.action == actionCancel {
		r.interruption = found.metadata
	}
	return found.action == actionCancel
}

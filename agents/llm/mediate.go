package llm

import (
	"context"
	"errors"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/internal/fault"
)

// decide implements the mediator of the loop: calls that cannot be read or are not permitted are refused, those that
// need approval become a question to a person.
func (j *job) decide(ctx context.Context, proposal loop.Proposal) map[string]any {
	if reason, is := proposal.RawToolCall[unreadable].(string); is {
		return refuse("The call was not made: "+reason+".", "unreadable_arguments")
	}
	if proposal.ToolDeclaration == nil || proposal.PreparedToolCall == nil {
		return nil
	}
	switch j.action(proposal.ToolDeclaration) {
	case tool.ActionForbidden:
		return refuse("The sender may not use this tool.", "action_forbidden")
	case tool.ActionPreview:
		return j.question(ctx, proposal)
	}
	return nil
}

func refuse(text, kind string) map[string]any {
	return map[string]any{"action": tool.ActionReject, "error": text, "metadata": map[string]any{"error_type": kind}}
}

// question asks for approval. Nothing that goes wrong here may let the call through.
func (j *job) question(ctx context.Context, proposal loop.Proposal) map[string]any {
	if j.agent.options.Approvals == nil {
		return refuse("The tool needs approval, and nobody can give it here.", "approval_unavailable")
	}
	message, err := j.askApproval(ctx, proposal)
	if err != nil {
		return refuse("Approval could not be asked for: "+publicText(err), "approval_unavailable")
	}
	return map[string]any{
		"action": tool.ActionReplace, "complete": true,
		"result": map[string]any{"success": true, "tool_name": proposal.ToolName, "result": message},
	}
}

func (j *job) askApproval(ctx context.Context, proposal loop.Proposal) (message map[string]any, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a defect of the server")
		}
	}()
	message, err = j.agent.options.Approvals.Ask(ctx, j.turn, proposal)
	if err == nil && message["type"] != string(envelope.TypeApprovalRequired) {
		err = errors.New("nobody was asked")
	}
	return message, err //nolint:wrapcheck // shown to the model
}

func publicText(err error) string {
	if known, is := errors.AsType[*fault.Fault](err); is {
		return known.Public
	}
	return err.Error()
}

package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/policypart"
)

// Claims is the shared table of small documents. It decides which run makes an approved call.
type Claims interface {
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
}

// ByDemand is Approvals where the demand of the parked turn decides: the call is made when the turn runs again with a
// demand that was granted. Each approved call is begun once; a run that died during it is not repeated when the tool
// must run at most once, and repeated under the same idempotency key otherwise.
type ByDemand struct {
	Tools  []Tools
	Claims Claims
}

const (
	claimNamespace = "agents.approved" // hash of turn and call → "begun"
	claimLife      = 30 * 24 * time.Hour
)

// Ask writes down the call and what was decided last, so that an earlier decision is never taken for this one.
func (b ByDemand) Ask(_ context.Context, turn agents.Turn, proposal loop.Proposal) (map[string]any, error) {
	prepared := proposal.PreparedToolCall
	name := value.Text(prepared["tool_name"])
	redacted := tool.RedactParameters(proposal.Parameters, proposal.ToolDeclaration)
	action := tool.Hash(map[string]any{"turn": turn.ID, "call": proposal.ToolCallID, "tool": name, "parameters": prepared["parameters"]})
	payload := map[string]any{
		"action_id": action, "kind": "tool_call", "preview": map[string]any{"tool_name": name, "parameters": redacted},
		"apply_input":     map[string]any{"tool_name": name, "parameters": prepared["parameters"]},
		"decided_before":  decision(turn),
		"at_most_once":    !tool.Repeatable(proposal.ToolDeclaration),
		"idempotency_key": tool.Call{Name: name, Parameters: value.Assoc(prepared["parameters"]), Context: map[string]any{"run_id": turn.ID}}.IdempotencyKey(),
	}
	summary := fmt.Sprintf("The agent wants to use %s with %s.", quote(name), value.EncodeText(redacted))
	return envelope.NewApprovalRequired(summary, payload, map[string]any{"tool_call_id": proposal.ToolCallID}).Value(), nil
}

// decision names the resolution that the turn runs with.
func decision(turn agents.Turn) string {
	if turn.Message.PolicyResolution == nil {
		return ""
	}
	body, err := json.Marshal(turn.Message.PolicyResolution)
	if err != nil {
		return "unreadable"
	}
	return tool.Hash(string(body))
}

// Settle makes the call once it was granted.
func (b ByDemand) Settle(ctx context.Context, turn agents.Turn, waiting Waiting) (map[string]any, error) {
	resolution := turn.Message.PolicyResolution
	payload := value.Assoc(waiting.Request["payload"])
	switch {
	case resolution == nil || decision(turn) == value.Text(payload["decided_before"]):
		return nil, nil
	case resolution.Outcome != policypart.OutcomeGranted:
		return map[string]any{"success": false, "error": "It was not approved.", "error_type": "approval_" + resolution.Outcome}, nil
	}
	key := tool.Hash(map[string]any{"turn": turn.ID, "call": waiting.CallID})
	_, first, err := b.Claims.PutIfAbsent(ctx, claimNamespace, key, []byte("begun"), time.Now().Add(claimLife))
	if err != nil {
		return nil, fault.RetryIn(0, "the approved call cannot be noted now", err)
	}
	if !first && marked(payload, "at_most_once") {
		return map[string]any{
			"success": false, "error_type": "outcome_unknown",
			"error": "The call was begun before and its outcome is not known; it must not be made twice.",
		}, nil
	}
	return b.call(ctx, turn, waiting, value.Assoc(payload["apply_input"]))
}

// call finds the tool again and runs it with the approved parameters.
func (b ByDemand) call(ctx context.Context, turn agents.Turn, waiting Waiting, input map[string]any) (map[string]any, error) {
	name := value.Text(input["tool_name"])
	for _, source := range b.Tools {
		entries, err := source.Declarations(ctx, turn)
		if err != nil {
			return nil, err
		}
		declared, _ := tool.Declare(entries)
		declaration, known := declared.Get(name)
		if !known {
			continue
		}
		return tool.Execute(ctx, tool.Prepared{Call: tool.Call{
			Name: name, Parameters: value.Assoc(input["parameters"]), ID: waiting.CallID, Declaration: declaration,
			Context: map[string]any{"run_id": turn.ID, "agent": turn.Agent, "tool_call_id": waiting.CallID},
		}}, tool.Executors{Default: source}), nil
	}
	return map[string]any{"success": false, "error": "The tool is not there any more.", "error_type": "tool_not_found"}, nil
}

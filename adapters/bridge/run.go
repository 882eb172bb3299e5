package bridge

import (
	"strings"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/task"
	"inbox/exchange"
	"inbox/normalized"
)

// stamp is how the contract writes instants.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// statusOf is the state of a turn in the words of run control (agent runtime contract, section 6.6).
func statusOf(turn exchange.TurnRecord) string {
	switch turn.State {
	case exchange.StateAccepted, exchange.StateHeld:
		return task.StatusQueued
	case exchange.StateRunning:
		return task.StatusRunning
	case exchange.StateAnswered, exchange.StateSilent:
		return envelope.StatusCompleted
	case exchange.StateCancelled:
		return task.StatusCancelled
	case exchange.StateWaiting:
		switch {
		case turn.Reason == exchange.WaitingDispatch:
			return task.StatusRunning
		case strings.HasPrefix(turn.Reason, exchange.WaitingTool):
			return envelope.StatusRuntimeToolPending
		}
		return envelope.StatusApprovalRequired
	}
	return task.StatusFailed
}

// completed reports whether the agent has nothing more to ask.
func completed(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateSilent || turn.State == exchange.StateAnswered &&
		(turn.Response == nil || turn.Response.Status != normalized.StatusInputRequired)
}

// runOf writes a turn as a run with its output (agent runtime contract, sections 6.1 and 6.6).
func runOf(turn exchange.TurnRecord, shown present) map[string]any {
	r := readRoute(turn.Route)
	run := map[string]any{
		"run_id": turn.ID, "session_id": r.Session, "agent": turn.Agent, "status": statusOf(turn), "completed": completed(turn),
		"started_at": stamp(turn.AcceptedAt), "updated_at": stamp(turn.UpdatedAt), "metadata": map[string]any{},
	}
	for name, value := range map[string]string{
		"task_id": r.Run, "connector_id": r.Connector, "external_conversation_id": r.Conversation, "external_message_id": r.ExternalID,
	} {
		if value != "" {
			run[name] = value
		}
	}
	if turn.Response == nil || turn.State == exchange.StateAccepted || turn.State == exchange.StateRunning {
		return run
	}
	reply := textOf(turn.Response, shown)
	run["reply"], run["messages"] = reply, []any{}
	if reply != "" {
		run["messages"] = []any{map[string]any{"role": "assistant", "content": reply}}
	}
	if parts := partsOf(turn.Response, shown); parts != nil {
		run["parts"] = parts
	}
	if r.Way == wayQueue && turn.ReplyID != "" {
		run["queue_id"] = queueID(turn.ReplyID)
	}
	return run
}

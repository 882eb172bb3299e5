package chat

import (
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/reference"
	"inbox/normalized"
)

// ChatMetadata is what the answer tells about its run in the words of the reference runtime.
type ChatMetadata struct {
	AgentsAPI RunMetadata `json:"agents_api"`
}

// RunMetadata is how a run went, as far as its asker may know it: what a run costs, what it failed of and tools that the
// operator does not show are the operator's (agent runtime contract, section 6.1).
type RunMetadata struct {
	Status            string         `json:"status"`                       // of run control
	RunOutcome        map[string]any `json:"run_outcome,omitempty"`        // of a run that ended or waits
	ToolObservability map[string]any `json:"tool_observability,omitempty"` // of the tools that are shown
}

func runMetadataOf(turn exchange.TurnRecord) RunMetadata {
	about := RunMetadata{Status: statusOf(turn)}
	if about.Status != statusQueued && about.Status != statusRunning {
		about.RunOutcome = runOutcomeOf(turn, about.Status)
	}
	if tools := toolsOf(turn); len(tools) > 0 {
		about.ToolObservability = observabilityOf(tools)
	}
	return about
}

// ChatFailure says why there is no answer. The reply has it in words.
type ChatFailure struct {
	Code          string `json:"code"`                    // stable
	Retryable     bool   `json:"retryable"`               // the same message may be answered later
	Documentation string `json:"documentation,omitempty"` // where the code is explained, a path on this server
}

// failureOf returns the error of a turn without an answer, or nil if the turn has an answer or no recorded reason.
func failureOf(turn exchange.TurnRecord) *ChatFailure {
	failure := exchange.FailureOf(ended(turn))
	if failure == nil {
		return nil
	}
	return &ChatFailure{failure.Code, failure.Retryable(), reference.OfCode(failure.Code)}
}

// stopOf returns normalized.StopLength for an answer that is cut.
func stopOf(turn exchange.TurnRecord) string {
	if turn.Response == nil || !turn.Response.Unfinished() {
		return ""
	}
	return normalized.StopLength
}

// runOutcomeOf does not say that a message that was refused may be sent again.
func runOutcomeOf(turn exchange.TurnRecord, status string) map[string]any {
	said := map[string]any{}
	if status == statusFailed {
		said["stop_reason"], said["retryable"] = statusFailed, turn.State == exchange.StateFailed
		if failure := failureOf(turn); failure != nil {
			said["retryable"], said["failure"] = failure.Retryable && turn.State == exchange.StateFailed, map[string]any{"type": failure.Code}
		}
	}
	if stopped := turn.Response.Stopped(); stopped != "" && exchange.Terminal(turn.State) {
		said["status"], said["stop_reason"] = stopped, turn.Response.StopReason()
	}
	return envelope.RunOutcome(map[string]any{"status": status, "completed": status == statusCompleted, "run_outcome": said})
}

// observabilityOf leaves out what answers do not tell: in which turn of the loop a call was made, and its arguments where
// only names are shown.
func observabilityOf(tools []ChatTool) map[string]any {
	var events, executions []any
	for _, shown := range tools {
		events = append(events, map[string]any{
			"type": "tool_call", "tool_call_id": shown.ID, "tool_name": shown.Name, "metadata": map[string]any{"parameters": decoded(shown.Args)},
		})
		if shown.Status == toolRunning {
			continue
		}

		events = append(events, map[string]any{
			"type": "tool_result", "tool_call_id": shown.ID, "tool_name": shown.Name, "metadata": map[string]any{"success": shown.Status == toolSucceeded},
		})
		execution := map[string]any{"tool_name": shown.Name}
		if len(shown.Result) > 0 {
			execution["result"] = decoded(shown.Result)
		}
		executions = append(executions, map[string]any{"tool_call_id": shown.ID, "result": execution})
	}

	observed := envelope.Observe(events, executions)
	for i, call := range value.Elements(observed["calls"]) {
		delete(value.Assoc(call), "turn")
		if len(tools[i].Args) == 0 {
			delete(value.Assoc(call), "arguments")
		}
	}
	return observed
}

// decoded reads JSON that was checked when it was stored.
func decoded(text []byte) any {
	given, err := value.Decode(text, value.Limits{})
	if err != nil {
		return nil
	}
	return given
}

// messagesOf are the lines of the agent in an answer.
func messagesOf(reply string) []ChatLine {
	if reply == "" {
		return []ChatLine{}
	}
	return []ChatLine{{normalized.RoleAssistant, reply}}
}

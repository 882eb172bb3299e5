package llm

import (
	"context"
	"log/slog"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// loopEvent is an event of the loop that operators see: on the timeline under its own name, and once in the log.
type loopEvent struct {
	level slog.Level
	facts []string // members of its payload that hold no contents
}

// loopEvents are those that no other row of the timeline tells (agent runtime contract, section 3.4).
var loopEvents = map[string]loopEvent{
	"tool_declarations_rejected":        {slog.LevelWarn, []string{"rejected", "rejected_count", "accepted_count"}},
	"tool_mediation_disabled":           {slog.LevelWarn, []string{"reason", "rejected", "rejected_count"}},
	"budget_exceeded":                   {slog.LevelWarn, []string{"budget", "dimension", "current", "ceiling"}},
	"loop_stalled":                      {slog.LevelWarn, []string{"tool_name", "parameters_hash", "turn", "repeat_count", "threshold"}},
	"identical_failure_nudged":          {slog.LevelInfo, []string{"tool_name", "error_code", "turn", "repeat_count", "threshold"}},
	"tool_result_truncated":             {slog.LevelInfo, []string{"tool_name", "tool_call_id", "turn", "original_bytes", "excerpt_bytes", "citations_dropped"}},
	"completion_policy_stop":            {slog.LevelInfo, []string{"tool_name", "turn", "reason"}},
	"completion_policy_continue":        {slog.LevelInfo, []string{"tool_name", "turn", "reason"}},
	"tool_call_gate_completion_blocked": {slog.LevelInfo, []string{"rule_id", "after_tool", "require_one_of", "min_tool_calls"}},
	"interrupt_received":                {slog.LevelInfo, []string{"action", "source", "reason", "turn"}},
}

// tellEvent writes an event of the loop to the timeline and the log.
func (j *job) tellEvent(ctx context.Context, name string, payload map[string]any) {
	known, told := loopEvents[name]
	if !told {
		return
	}

	facts := make(map[string]any, len(known.facts))
	attributes := []any{"event", name, "turn_id", j.turn.ID, "agent", j.turn.Agent}
	for _, member := range known.facts {
		given, has := payload[member]
		if !has && member == "reason" {
			given, has = value.Assoc(payload["context"])["reason"]
		}
		if fact := factOf(given); has && fact != nil {
			facts[member] = fact
			attributes = append(attributes, member, fact)
		}
	}

	j.turn.Did(name, facts)
	slog.Log(ctx, known.level, "event of an agent's loop", attributes...)
}

// maxFacts bounds the entries of one list in an event: servers of tools declare as many as they like.
const maxFacts = 16

// factOf bounds what a row of the timeline has of a payload.
func factOf(given any) any {
	switch fact := value.Plain(given).(type) {
	case string:
		return shortened(fact)
	case []any:
		short := make([]any, 0, min(len(fact), maxFacts))
		for _, entry := range fact[:min(len(fact), maxFacts)] {
			short = append(short, factOf(entry))
		}
		return short
	case map[string]any:
		short := map[string]any{}
		for _, member := range []string{"name", "reason"} { // of a rejection
			if text := value.Text(fact[member]); text != "" {
				short[member] = shortened(text)
			}
		}
		return short
	default:
		return fact
	}
}

// tellRecorded tells the events that the loop writes into its result alone.
func (j *job) tellRecorded(ctx context.Context, result map[string]any) {
	events, _ := value.List(result["events"])
	for _, entry := range events {
		if event := value.Assoc(entry); event["type"] == "completion_policy_stop" {
			j.tellEvent(ctx, "completion_policy_stop", value.Assoc(event["metadata"]))
		}
	}
}

// rejecting is a source that knows of tools that it cannot declare.
type rejecting interface{ Rejected() []tool.Rejection }

// tellRejected tells which declarations were left out, and when nothing is left of them (agent runtime contract, section 4.2).
func (j *job) tellRejected(ctx context.Context, rejected []tool.Rejection, accepted int) {
	if len(rejected) == 0 {
		return
	}
	observe := j.observe(ctx)
	observe("tool_declarations_rejected", tool.RejectionReport(rejected, accepted))
	if accepted == 0 {
		observe("tool_mediation_disabled", tool.DisabledReport(rejected))
	}
}

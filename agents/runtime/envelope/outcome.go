package envelope

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"inbox/agents/runtime/value"
)

// OutcomeSchema and OutcomeVersion stand in every run outcome.
const (
	OutcomeSchema  = "agents-api.run-outcome"
	OutcomeVersion = 1
)

// How a run ended (agent runtime contract, section 2.1).
const (
	StatusCompleted          = "completed"
	StatusFailed             = "failed"
	StatusRuntimeToolPending = "runtime_tool_pending"
	StatusApprovalRequired   = "approval_required"
	StatusBudgetExceeded     = "budget_exceeded"
	StatusStalled            = "stalled"
	StatusCancelled          = "cancelled"
	StatusInterrupted        = "interrupted"
	StatusIncomplete         = "incomplete"
)

// Why a run stopped, where the status does not say it already.
const (
	StopNatural       = "natural"
	StopMaxTurns      = "max_turns"
	StopProviderError = "provider_error"
)

// paused are the statuses of a result that become the outcome's status as they are.
var paused = []string{
	StatusRuntimeToolPending, StatusApprovalRequired, StatusBudgetExceeded, StatusStalled, StatusInterrupted, StatusCancelled,
}

// RunOutcome derives the outcome of a result, respecting what its run_outcome member already says.
func RunOutcome(result map[string]any) map[string]any {
	supplied := value.Assoc(result["run_outcome"])
	completed := truthy(supplied, "completed", result["completed"] == nil || value.Truthy(result["completed"]))
	status := lowered(supplied["status"])
	if !knownStatus(status) {
		status = derivedStatus(result, completed)
	}

	completed = completed && status == StatusCompleted
	outcome := map[string]any{
		"schema": OutcomeSchema, "version": OutcomeVersion, "status": status, "completed": completed,
		"stop_reason": stopReason(supplied, result, status, completed),
		"retryable":   truthy(supplied, "retryable", retryable(result, status)),
	}

	for _, key := range []string{"failure", "assertions", "provider_error", "metadata"} {
		if object, is := value.Object(supplied[key]); is {
			outcome[key] = object
		}
	}

	failure, failed := value.Object(result["failure"])
	if outcome["failure"] == nil && failed {
		outcome["failure"] = failure
	}
	if outcome["provider_error"] == nil && failed && outcome["stop_reason"] == StopProviderError {
		outcome["provider_error"] = failure
	}

	return outcome
}

// RunControlStatus returns the status under which run control keeps a run with this result.
func RunControlStatus(result map[string]any) string {
	status := value.Text(RunOutcome(result)["status"])
	if status == StatusIncomplete {
		return "running"
	}
	return status
}

func knownStatus(status string) bool {
	return slices.Contains(paused, status) || status == StatusCompleted || status == StatusFailed || status == StatusIncomplete
}

func derivedStatus(result map[string]any, completed bool) string {
	status := lowered(result["status"])
	switch {
	case slices.Contains(paused, status):
		return status
	case status == StatusFailed, result["failure"] != nil:
		return StatusFailed
	case completed:
		return StatusCompleted
	}
	return StatusIncomplete
}

func stopReason(supplied, result map[string]any, status string, completed bool) string {
	if reason := lowered(supplied["stop_reason"]); reason != "" {
		return reason
	}

	own := lowered(result["status"])
	switch {
	case own == StatusBudgetExceeded && lowered(result["budget"]) == "turns":
		return StopMaxTurns
	case status == StatusFailed:
		return StopProviderError
	case completed:
		return StopNatural
	case own != "":
		return own
	}

	return status
}

func retryable(result map[string]any, status string) bool {
	switch status {
	case StatusRuntimeToolPending, StatusApprovalRequired, StatusCancelled, StatusInterrupted:
		return false
	}
	return status == StatusFailed || lowered(result["status"]) == StatusBudgetExceeded
}

// lowered returns a scalar as trimmed lower-case text.
func lowered(given any) string {
	switch v := value.Plain(given).(type) {
	case string:
		return strings.ToLower(value.Trim(v))
	case json.Number:
		return strings.ToLower(v.String())
	case bool:
		if v {
			return "1"
		}
	}
	return ""
}

// truthy returns the truth of a member if it is there, null included, else the fallback.
func truthy(object map[string]any, key string, fallback bool) bool {
	if member, there := object[key]; there {
		return value.Truthy(member)
	}
	return fallback
}

// ObservabilityVersion is the version of tool_observability.
const ObservabilityVersion = 1

// observation follows the events of one result.
type observation struct {
	calls   []any
	open    map[string][]map[string]any // calls without a result yet, by id, oldest first
	results map[string][]any            // execution results that no call took yet, by id
}

// Observe reports what tools were called and how that went, without any content: names, counts and sizes only (agent
// runtime contract, section 2.2). Events and results are those of a conversation result, in order.
func Observe(events, executions []any) map[string]any {
	o := &observation{calls: []any{}, open: map[string][]map[string]any{}, results: map[string][]any{}}
	for _, execution := range executions {
		id := value.Text(value.Assoc(execution)["tool_call_id"])
		o.results[id] = append(o.results[id], execution)
	}

	for _, entry := range events {
		event := value.Assoc(entry)
		id := value.Text(event["tool_call_id"])
		switch value.Text(event["type"]) {
		case "tool_call":
			o.call(id, event, argumentNames(value.Assoc(event["metadata"])["parameters"]))
		case "tool_result":
			o.result(id, value.Assoc(event["metadata"]))
		}
	}

	return map[string]any{"version": ObservabilityVersion, "calls": o.calls}
}

// argumentNames lists the names of the parameters, sorted, since the members of a map have no order. The entries of a
// list are named by their positions.
func argumentNames(parameters any) []any {
	names := []any{}
	switch v := parameters.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			names = append(names, key)
		}
	case []any:
		for i := range v {
			names = append(names, strconv.Itoa(i))
		}
	}
	return names
}

func (o *observation) call(id string, event map[string]any, names []any) {
	turn, _ := value.Integer(event["turn_count"])
	call := map[string]any{
		"sequence": len(o.calls) + 1, "turn": turn, "tool_call_id": id, "tool_name": value.Text(event["tool_name"]),
		"status":    "pending",
		"arguments": map[string]any{"keys": names, "count": len(names), "redacted": true},
	}
	o.calls = append(o.calls, call)
	o.open[id] = append(o.open[id], call)
}

// result closes the oldest open call with the id. A result without a call says nothing.
func (o *observation) result(id string, metadata map[string]any) {
	if len(o.open[id]) == 0 {
		return
	}

	call := o.open[id][0]
	o.open[id] = o.open[id][1:]
	rejected, succeeded := value.Flag(metadata["rejected"]), value.Flag(metadata["success"])
	call["status"] = status(rejected, succeeded)

	if !succeeded {
		call["error"] = safeError(rejected)
	}
	if len(o.results[id]) == 0 {
		return
	}

	execution := value.Assoc(value.Assoc(o.results[id][0])["result"])
	o.results[id] = o.results[id][1:]

	if name := value.Text(execution["tool_name"]); name != "" {
		call["tool_name"] = name
	}
	if given, there := execution["result"]; there && succeeded {
		call["result"] = shape(given)
	}
}

func status(rejected, succeeded bool) string {
	switch {
	case rejected:
		return "rejected"
	case succeeded:
		return "succeeded"
	}
	return "failed"
}

func safeError(rejected bool) map[string]any {
	if rejected {
		return map[string]any{"code": "agents_api_tool_call_rejected", "message": "Tool call was rejected."}
	}
	return map[string]any{"code": "agents_api_tool_execution_failed", "message": "Tool execution failed."}
}

// shape describes a value without its content. Empty containers of both kinds are an array.
func shape(given any) map[string]any {
	switch v := value.Plain(given).(type) {
	case map[string]any:
		if len(v) > 0 {
			return map[string]any{"type": "object", "count": len(v)}
		}
		return map[string]any{"type": "array", "count": 0}
	case []any:
		return map[string]any{"type": "array", "count": len(v)}
	case string:
		return map[string]any{"type": "string", "size": len(v)}
	case bool:
		return map[string]any{"type": "boolean"}
	case json.Number:
		if _, whole := value.Integer(v); whole {
			return map[string]any{"type": "integer"}
		}
		return map[string]any{"type": "double"}
	}
	return map[string]any{"type": "null"}
}

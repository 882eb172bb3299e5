package envelope

import (
	"encoding/json"
	"slices"
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

// RunControlStatus gives the status under which run control keeps a run with this result.
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

// lowered gives a scalar as trimmed lower-case text.
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

// truthy gives the truth of a member if it is there, null included, else the fallback.
func truthy(object map[string]any, key string, fallback bool) bool {
	if member, there := object[key]; there {
		return value.Truthy(member)
	}
	return fallback
}

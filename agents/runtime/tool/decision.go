package tool

import (
	"strings"

	"inbox/agents/runtime/value"
)

// Actions of a Decision.
const (
	ActionProceed = "proceed"
	ActionReject  = "reject"
	ActionReplace = "replace_result"
	ActionPending = "pending"
)

// StatusPending is the status of a result that waits for a runtime tool outside.
const StatusPending = "runtime_tool_pending"

// Decision is what a mediator wants done with a call.
type Decision struct {
	Action   string         // ActionProceed, ActionReject, ActionReplace or ActionPending
	Result   map[string]any // normalized; nil for ActionProceed
	Request  map[string]any // of ActionPending: the runtime tool request with its defaults, not yet normalized
	Complete bool           // stop the batch after this call; always true for ActionPending
}

// NormalizeDecision reads what a mediator returned. Nothing, nonsense and a replacement without a result mean proceed
// (agent runtime contract, section 4.6). A caller that finds the Request of a pending decision invalid proceeds, too.
func NormalizeDecision(given any, prepared Prepared, callID string, parameters, turnContext map[string]any) Decision {
	object, ok := value.Plain(given).(map[string]any)
	if !ok || prepared.ModelName == "" {
		return Decision{Action: ActionProceed}
	}

	complete := value.Truthy(object["complete"])
	switch decisionAction(object["action"]) {
	case ActionReject:
		return Decision{Action: ActionReject, Result: rejection(object, prepared.ModelName), Complete: complete}
	case ActionReplace:
		if result := object["result"]; value.PlainContainer(result) {
			return Decision{Action: ActionReplace, Result: NormalizeResult(value.Members(result), prepared.ModelName), Complete: complete}
		}
	case ActionPending:
		request := RequestWithDefaults(pendingRequest(object), RequestDefaults{
			ToolName: prepared.ModelName, CallID: callID, Parameters: parameters, Context: turnContext,
			Runtime: value.Members(object["runtime"]), Metadata: value.Members(object["metadata"]),
		})
		// The one who reads the stored request alone must see that it waits, as with requests of executed tools.
		request["metadata"] = with(request["metadata"], "status", StatusPending)

		return Decision{Action: ActionPending, Result: pendingResult(object, prepared.ModelName, request), Request: request, Complete: true}
	}

	return Decision{Action: ActionProceed}
}

func decisionAction(given any) string {
	text, ok := given.(string)
	if !ok {
		return ActionProceed
	}
	return strings.ToLower(value.Trim(text))
}

// rejection takes the mediator's own result if it names its tool, else makes one of error, metadata and runtime.
func rejection(object map[string]any, name string) map[string]any {
	if result := value.Members(object["result"]); value.Text(result["tool_name"]) != "" {
		return NormalizeResult(result, name)
	}

	metadata := value.Members(object["metadata"])
	if metadata["error_type"] == nil {
		metadata = with(metadata, "error_type", "pre_tool_mediation_rejected")
	}

	text, ok := value.NonBlank(object["error"])
	if !ok {
		text = "Tool call rejected by pre-tool mediator."
	}
	return ErrorResult(name, text, metadata, value.Members(object["runtime"]))
}

func pendingRequest(object map[string]any) map[string]any {
	for _, name := range []string{"runtime_tool_request", "request", "result"} {
		if object[name] != nil {
			return value.Members(object[name])
		}
	}
	return map[string]any{}
}

func pendingResult(object map[string]any, name string, request map[string]any) map[string]any {
	text, ok := value.NonBlank(object["error"])
	if !ok {
		text = "Waiting for external runtime tool result."
	}
	return NormalizeResult(map[string]any{
		"success": false, "tool_name": name, "status": StatusPending, "error": text,
		"metadata": with(object["metadata"], "status", StatusPending), "runtime": object["runtime"],
		"runtime_tool_request": request,
	}, name)
}

// RequestDefaults is what a runtime tool request gets where it says nothing itself.
type RequestDefaults struct {
	ToolName   string
	CallID     string
	Parameters map[string]any
	Context    map[string]any // of the turn: run_id and runtime_tool_timeout_at are taken from it
	Runtime    map[string]any
	Metadata   map[string]any
}

// RequestWithDefaults completes a runtime tool request (agent runtime contract, section 5). Its checks are made by the
// room of these requests.
func RequestWithDefaults(request map[string]any, defaults RequestDefaults) map[string]any {
	completed := value.Clone(value.Members(request))
	fill(completed, "tool_name", defaults.ToolName)
	fill(completed, "tool_call_id", defaults.CallID)
	fill(completed, "parameters", object(defaults.Parameters))
	fill(completed, "run_id", value.Text(defaults.Context["run_id"]))
	fill(completed, "timeout_at", value.Text(defaults.Context["runtime_tool_timeout_at"]))
	fill(completed, "runtime", object(defaults.Runtime))
	fill(completed, "metadata", object(defaults.Metadata))
	return completed
}

func object(given map[string]any) map[string]any {
	if given == nil {
		return map[string]any{}
	}
	return value.Clone(given)
}

// PendingRequest returns the runtime tool request of a result that says that it waits for one, by its status or by that
// in its metadata (agent runtime contract, section 3.3).
func PendingRequest(result map[string]any, defaults RequestDefaults) (map[string]any, bool) {
	metadata := value.Members(result["metadata"])
	status, has := result["status"].(string)
	if !has {
		status = value.Text(metadata["status"])
	}
	if status != StatusPending {
		return nil, false
	}

	request := result["runtime_tool_request"]
	if request == nil {
		request = result["result"]
	}

	defaults.Runtime, defaults.Metadata = value.Members(result["runtime"]), metadata
	return RequestWithDefaults(value.Members(request), defaults), true
}

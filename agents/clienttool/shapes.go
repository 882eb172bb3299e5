package clienttool

// The documents of the routes, for the description of the API (agent runtime contract, section 5). The lifecycle of requests
// works on their members, because the contract forgives more than a type does; the tests hold both to each other.

// PolicyView says which tools of an agent a delegated runtime may have.
type PolicyView struct {
	Schema  string            `json:"schema"`  // agents-api/runtime-tool-policy/v1
	Version int               `json:"version"` // 1
	Context map[string]string `json:"context"` // agent
	Tools   []PolicyTool      `json:"tools"`
}

// PolicyTool is one of them. The legacy fields say the same in older words.
type PolicyTool struct {
	ID                  string            `json:"id"`
	RuntimeToolID       string            `json:"runtime_tool_id"`
	Allowed             bool              `json:"allowed"`
	Environment         string            `json:"environment"`      // runtime_local or control_plane
	CapabilityScope     string            `json:"capability_scope"` // the same words
	Runtime             map[string]string `json:"runtime"`
	Source              string            `json:"source,omitempty"`
	Mediated            bool              `json:"mediated,omitempty"` // the agent executes it itself, unless its mediator hands a call to a program
	ExecutionLocation   string            `json:"execution_location"`
	TransportVisibility string            `json:"transport_visibility"`
	LegacyFields        []string          `json:"legacy_fields"`
}

// RequestView is a call of a tool that a program executes.
type RequestView struct {
	RequestID  string         `json:"request_id"`
	Status     string         `json:"status"` // runtime_tool_pending, runtime_tool_completed or runtime_tool_timeout
	ToolName   string         `json:"tool_name"`
	ToolCallID string         `json:"tool_call_id"`
	Parameters any            `json:"parameters"`
	RunID      string         `json:"run_id"`
	TimeoutAt  string         `json:"timeout_at"`
	Runtime    any            `json:"runtime"`
	Metadata   any            `json:"metadata"`
	Agent      string         `json:"agent,omitempty"`
	CreatedAt  string         `json:"created_at,omitempty"`
	UpdatedAt  string         `json:"updated_at,omitempty"`
	Result     map[string]any `json:"result,omitempty"`
}

// RequestList are the calls that wait, oldest first.
type RequestList struct {
	Requests []RequestView `json:"requests"`
}

// RequestAnswer is one call.
type RequestAnswer struct {
	Request RequestView `json:"request"`
}

// RequestEnded is the data of the event ended.
type RequestEnded struct {
	RequestID string `json:"request_id"`
}

// ResultBody is the result of a call.
type ResultBody struct {
	Success   *bool          `json:"success,omitempty"` // true where there is no error
	Result    any            `json:"result,omitempty"`
	Error     string         `json:"error,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
	RequestID string         `json:"request_id,omitempty"` // that of the address
}

// Ended is what ends a call answers.
type Ended struct {
	Status    string          `json:"status"` // runtime_tool_submitted or runtime_tool_timeout
	Request   RequestView     `json:"request"`
	Result    map[string]any  `json:"result"`
	Duplicate bool            `json:"duplicate"` // it had ended before: this is what counted
	Message   ResultMessage   `json:"tool_result_message"`
	Execution Execution       `json:"tool_execution_result"`
	Continued *map[string]any `json:"continuation_result"` // null: the run goes on by itself
	Cancelled bool            `json:"cancelled,omitempty"`
}

// ResultMessage is the result as a message of the run.
type ResultMessage struct {
	ToolName   string         `json:"tool_name"`
	ToolCallID string         `json:"tool_call_id"`
	Success    bool           `json:"success"`
	Status     *string        `json:"status"`
	Result     map[string]any `json:"result"`
}

// Execution is the result as a record of the run.
type Execution struct {
	ToolName   string         `json:"tool_name"`
	ToolCallID string         `json:"tool_call_id"`
	Parameters any            `json:"parameters"`
	Result     map[string]any `json:"result"`
	Runtime    any            `json:"runtime"`
	TurnCount  int            `json:"turn_count"`
}

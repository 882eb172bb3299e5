package tasks

import (
	"net/http"

	"inbox/agents/runtime/task"
	"inbox/internal/openapi"
)

// The documents of the routes, for the description of the API. Handlers read and write them member by member, because the runtime
// contract forgives more than a type does; the tests hold both to each other.

// TaskBody is a task input; its members may also stand beside task, and others are kept.
type TaskBody struct {
	Schema        string         `json:"schema,omitempty"`
	Task          *TaskWork      `json:"task,omitempty"`
	TaskID        string         `json:"task_id,omitempty"`
	SessionID     string         `json:"session_id,omitempty"`
	RunID         string         `json:"run_id,omitempty"`
	Placement     *Placement     `json:"placement,omitempty"`
	ClientContext map[string]any `json:"client_context,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
}

// TaskWork is what is to be done.
type TaskWork struct {
	ID           string           `json:"id"`
	Instructions string           `json:"instructions,omitempty"`
	Input        map[string]any   `json:"input,omitempty"`
	Attachments  []map[string]any `json:"attachments,omitempty"` // url, or data_base64; name, mime_type
	Metadata     map[string]any   `json:"metadata,omitempty"`
}

// Placement is where a task may run.
type Placement struct {
	PreferredTarget      string   `json:"preferred_target,omitempty"`
	AllowedTargets       []string `json:"allowed_targets,omitempty"`
	ResourceClass        string   `json:"resource_class,omitempty"`
	RequiredCapabilities []string `json:"required_capabilities,omitempty"`
}

// TaskOwner is who began a run.
type TaskOwner struct {
	Type string `json:"type,omitempty"`
	Key  string `json:"key,omitempty"`
}

// TaskRunView is a run. Callers who are no managers read "[redacted]", or {"redacted": true}, in the place of output, diagnostics and
// provenance.
type TaskRunView struct {
	Schema           string           `json:"schema"`
	RunID            string           `json:"run_id"`
	SessionID        string           `json:"session_id"`
	Status           string           `json:"status"` // queued, running, cancelled, succeeded or failed
	ExecutorID       string           `json:"executor_id"`
	Owner            TaskOwner        `json:"owner"`
	ExecutionMetrics map[string]any   `json:"execution_metrics"`
	ArtifactRefs     []map[string]any `json:"artifact_refs"`
	Diagnostics      map[string]any   `json:"diagnostics"`
	Events           []map[string]any `json:"events"`
	Provenance       map[string]any   `json:"provenance"`
	Output           any              `json:"output"`
	StartedAt        string           `json:"started_at"`
	UpdatedAt        string           `json:"updated_at"`
	Metadata         map[string]any   `json:"metadata"`
	Cancelled        *bool            `json:"cancelled,omitempty"` // whether this request ended it
}

// TaskRunPage is a page of runs, newest first.
type TaskRunPage struct {
	Runs []TaskRunView `json:"runs"`
	Next string        `json:"next,omitempty"` // value of "before" for the following page
}

// TaskEnvelope is a run in the form of all kinds of runs.
type TaskEnvelope struct {
	Schema       string            `json:"schema"`
	Version      int               `json:"version"`
	RunID        string            `json:"run_id"`
	Status       string            `json:"status"`
	Outputs      map[string]any    `json:"outputs"`
	ArtifactRefs []map[string]any  `json:"artifact_refs"`
	EvidenceRefs []map[string]any  `json:"evidence_refs"`
	Logs         []map[string]any  `json:"logs"`
	Replay       map[string]any    `json:"replay"`
	Provenance   map[string]any    `json:"provenance"`
	Timestamps   map[string]string `json:"timestamps"`
	Error        map[string]any    `json:"error"`
	Cancellation map[string]any    `json:"cancellation"`
	Metadata     map[string]any    `json:"metadata"`
}

// TaskCancelBody names the session of the run.
type TaskCancelBody struct {
	SessionID string `json:"session_id,omitempty"`
}

// TargetView is a target.
type TargetView struct {
	Schema          string         `json:"schema"`
	ID              string         `json:"id"`
	Label           string         `json:"label"`
	Kind            string         `json:"kind"` // agent, a2a or pull
	Description     string         `json:"description"`
	Capabilities    []string       `json:"capabilities"`
	ResourceClasses []string       `json:"resource_classes"`
	Metadata        map[string]any `json:"metadata"`
}

// TargetList are targets.
type TargetList struct {
	Schema  string       `json:"schema"`
	Targets []TargetView `json:"targets"`
}

// Operations describe the routes.
func Operations() []openapi.Operation {
	ofSession := []string{"session_id!"}
	work := TaskBody{
		Task:  &TaskWork{ID: "report-7", Instructions: "Write the report of July.", Input: map[string]any{"month": "2026-07"}},
		RunID: "run-7", SessionID: "reports", Placement: &Placement{RequiredCapabilities: []string{"reports"}},
	}

	list := []openapi.Operation{
		{
			Method: "GET", Path: "/v1/targets", Summary: "Targets on which tasks run", Query: []string{"resource_class", "required_capabilities", "allowed_targets"},
			Response: TargetList{Schema: task.SchemaTargetList, Targets: []TargetView{}},
		},
		{
			Method: "POST", Path: "/v1/tasks", Summary: "Run a task; with wait the answer comes when it has ended", Query: []string{"wait"}, Request: work,
			Response: TaskRunView{}, Status: http.StatusAccepted, Also: []int{http.StatusOK}, Errors: []int{http.StatusConflict},
		},
		{Method: "GET", Path: "/v1/tasks", Summary: "Runs of the caller, newest first", Query: []string{"limit:integer", "before"}, Response: TaskRunPage{}},
		{Method: "GET", Path: "/v1/tasks/{run}", Summary: "A run", Query: append([]string{"wait"}, ofSession...), Response: TaskRunView{}},
		{Method: "GET", Path: "/v1/tasks/{run}/result", Summary: "A run in the form of all kinds of runs", Query: ofSession, Response: TaskEnvelope{}},
		{
			Method: "POST", Path: "/v1/tasks/{run}/cancel", Summary: "Cancel a run", Query: []string{"session_id"}, Request: TaskCancelBody{SessionID: "reports"},
			Response: TaskRunView{}, Partial: true,
		},
	}

	for i := range list {
		list[i].Tag, list[i].Security = "tasks", "tasks|operator"
	}
	return list
}

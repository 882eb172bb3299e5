package contract

import (
	"cmp"
	"encoding/json"
)

// Delta is one step of a growing answer.
type Delta struct {
	Kind       DeltaKind
	Text       string // of DeltaContent and DeltaArgument; of DeltaResult its JSON, or the text of the failure
	ToolCallID string // of all but DeltaContent
	ToolName   string // of DeltaCall and DeltaResult
	Index      int    // place of the call among those of the answer
	Arguments  string // of DeltaCall: the whole JSON where it is known, which DeltaArgument tells too
	Failed     bool   // of DeltaResult
}

// DeltaKind is what a Delta adds to.
type DeltaKind string

// The kinds of deltas (agent runtime contract, section 6.1). The last two are ours.
const (
	DeltaContent  DeltaKind = "content"
	DeltaCall     DeltaKind = "tool_call"
	DeltaArgument DeltaKind = "tool_argument"
	DeltaResult   DeltaKind = "tool_result"
	DeltaReset    DeltaKind = "reset" // the content so far is void: the run is repeated, and says other words
)

// Output is the answer of a turn as far as a Task tells it.
type Output struct {
	RunID     string
	SessionID string
	Reply     string
	Completed bool
}

// Task is the answer in the form of JSON-RPC chat (agent runtime contract, section 6.5).
type Task struct {
	ID        string         `json:"id"`
	Metadata  map[string]any `json:"metadata,omitempty"`
	SessionID string         `json:"sessionId,omitempty"`
	Status    TaskStatus     `json:"status"`
}

// TaskStatus has the words of the agent.
type TaskStatus struct {
	Message TaskMessage `json:"message"`
	State   string      `json:"state"`
}

// TaskMessage is what the agent said.
type TaskMessage struct {
	Kind      string     `json:"kind"`
	MessageID string     `json:"messageId"`
	Parts     []TaskPart `json:"parts"`
	Role      string     `json:"role"`
}

// TaskPart is a text.
type TaskPart struct {
	Text string `json:"text"`
	Type string `json:"type"`
}

// States of a Task here. Other surfaces have richer ones (agent runtime contract, section 6.5).
const (
	StateCompleted     = "completed"
	StateInputRequired = "input-required"
)

// TaskOf returns the Task of an output. Every output that is not completed demands input, also one that failed (agent
// runtime contract, section 6.5).
func TaskOf(output Output) Task {
	state := StateCompleted
	if !output.Completed {
		state = StateInputRequired
	}

	return Task{
		ID: cmp.Or(output.RunID, output.SessionID, "run"), SessionID: output.SessionID,
		Status: TaskStatus{State: state, Message: TaskMessage{
			Kind: "message", MessageID: cmp.Or(output.RunID, "run") + "-message", Role: "agent",
			Parts: []TaskPart{{Text: output.Reply, Type: "text"}},
		}},
	}
}

// Frame is a response of JSON-RPC 2.0, the last frame of a request: a result or an error.
type Frame struct {
	Error   *FrameError `json:"error,omitempty"`
	ID      any         `json:"id"`
	JSONRPC string      `json:"jsonrpc"`
	Result  *Task       `json:"result,omitempty"`
}

// FrameError is the error of a Frame.
type FrameError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// ResultFrame is the last frame of a request that was answered.
func ResultFrame(id any, task Task) Frame { return Frame{ID: id, JSONRPC: protocol, Result: &task} }

// ErrorFrame is the last frame of every other request.
func ErrorFrame(id any, number int, text string) Frame {
	return Frame{ID: id, JSONRPC: protocol, Error: &FrameError{number, text}}
}

// Notification is a frame before the last one.
type Notification struct {
	JSONRPC string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// NewNotification returns the frame of a notification.
func NewNotification(method string, params any) Notification {
	return Notification{JSONRPC: protocol, Method: method, Params: params}
}

// TaskDelta are the parameters of the notification of one delta.
type TaskDelta struct {
	Delta WireDelta `json:"delta"`
	ID    string    `json:"id"` // of the Task
}

// WireDelta is a Delta on the wire; what follows deltaType is there for calls of tools. The content of a result is empty: clients that
// do not know the type take it for text.
type WireDelta struct {
	Content       string  `json:"content"`
	DeltaType     string  `json:"deltaType"`
	ToolCallID    *string `json:"toolCallId,omitempty"`
	ToolCallIndex *int    `json:"toolCallIndex,omitempty"`
	ToolCallName  *string `json:"toolCallName,omitempty"`

	ToolStatus string          `json:"toolStatus,omitempty"` // of a result: succeeded or failed
	ToolResult json.RawMessage `json:"toolResult,omitempty"` // any JSON
	ToolError  string          `json:"toolError,omitempty"`
}

// DeltaFrame is the notification of one delta of a task. A delta of a kind that no one knows is content.
func DeltaFrame(task string, delta Delta) Notification {
	wire := WireDelta{DeltaType: string(delta.Kind), Content: delta.Text}
	switch delta.Kind {
	case DeltaCall:
		wire = WireDelta{DeltaType: "tool_name", Content: delta.ToolName, ToolCallName: &delta.ToolName}
		fallthrough
	case DeltaArgument:
		wire.ToolCallID, wire.ToolCallIndex = &delta.ToolCallID, &delta.Index
	case DeltaResult:
		wire = WireDelta{DeltaType: wire.DeltaType, ToolCallID: &delta.ToolCallID, ToolCallIndex: &delta.Index, ToolCallName: &delta.ToolName}
		if wire.ToolStatus = "succeeded"; delta.Failed {
			wire.ToolStatus, wire.ToolError = "failed", delta.Text
		} else if delta.Text != "" {
			wire.ToolResult = json.RawMessage(delta.Text)
		}
	case DeltaReset:
	default:
		wire.DeltaType = string(DeltaContent)
	}
	return NewNotification(methodDelta, TaskDelta{Delta: wire, ID: task})
}

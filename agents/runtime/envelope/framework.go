package envelope

import (
	"slices"
	"strings"
	"time"

	"inbox/agents/runtime/value"
)

// FrameworkType is the kind of a message of the older agent framework, whose rows have type, content and optionally
// timestamp, agent_key and metadata (agent runtime contract, section 8).
type FrameworkType string

// The types of the framework's messages.
const (
	UserMessage      FrameworkType = "user_message"
	AssistantMessage FrameworkType = "assistant_message"
	Task             FrameworkType = "task"
	Action           FrameworkType = "action"
	Observation      FrameworkType = "observation"
	Failure          FrameworkType = "error"
	Final            FrameworkType = "final"
	Synthesis        FrameworkType = "synthesis"
	StrategicPlan    FrameworkType = "strategic_plan"
	SuggestedPlan    FrameworkType = "suggested_plan"
	ScriptPlan       FrameworkType = "script_plan"
	DirectorContext  FrameworkType = "director_context"
	InjectedContext  FrameworkType = "injected_context"
	Delegation       FrameworkType = "delegation"
)

// Collection is a named group of the framework's types, for filters. Contexts and delegation belong to none.
type Collection string

// The collections.
const (
	Conversation   Collection = "CONVERSATION"
	ExecutionTrace Collection = "EXECUTION_TRACE"
	Completion     Collection = "COMPLETION"
	Planning       Collection = "PLANNING"
)

var collections = map[Collection][]FrameworkType{
	Conversation:   {UserMessage, AssistantMessage},
	ExecutionTrace: {Task, Action, Observation, Failure},
	Completion:     {Final, Synthesis},
	Planning:       {StrategicPlan, SuggestedPlan, ScriptPlan},
}

// Has reports whether the type belongs to the collection.
func (c Collection) Has(t FrameworkType) bool { return slices.Contains(collections[c], t) }

// FrameworkTypes lists all types of the framework's messages.
func FrameworkTypes() []FrameworkType {
	return []FrameworkType{
		UserMessage, AssistantMessage, Task, Action, Observation, Failure, Final, Synthesis, StrategicPlan, SuggestedPlan,
		ScriptPlan, DirectorContext, InjectedContext, Delegation,
	}
}

// unheard says which types there are, to whom wrote another one.
func unheard() error {
	var names []string
	for _, kind := range FrameworkTypes() {
		names = append(names, string(kind))
	}
	return odd("type", "is not known; want one of "+strings.Join(names, ", "))
}

// Known reports whether the framework has this type.
func (t FrameworkType) Known() bool { _, is := places[t]; return is }

// place says which envelope a type becomes.
type place struct {
	kind Type
	role string
}

var places = map[FrameworkType]place{
	UserMessage:      {TypeText, "user"},
	AssistantMessage: {TypeText, "assistant"},
	Task:             {TypeText, "user"},
	Action:           {TypeToolCall, "assistant"},
	Observation:      {TypeToolResult, "user"},
	Failure:          {TypeError, "assistant"},
	Final:            {TypeFinalResult, "assistant"},
	Synthesis:        {TypeFinalResult, "assistant"},
	StrategicPlan:    {TypeText, "assistant"},
	SuggestedPlan:    {TypeText, "system"},
	ScriptPlan:       {TypeText, "assistant"},
	DirectorContext:  {TypeText, "system"},
	InjectedContext:  {TypeText, "system"},
	Delegation:       {TypeText, "assistant"},
}

// marker is the member of an envelope's metadata that keeps what its own members cannot: the framework's type, the
// agent key, content that is no plain string, and every other member of the row.
const marker = "agent_framework"

// synthesisMembers stand beside the content of a synthesis and in the payload of its envelope.
var synthesisMembers = []string{"phase_id", "from_manager", "is_global"}

// ValidateFramework checks a message by the framework's own rules: a known type, content that fits it, an agent key in
// the execution trace, an ISO 8601 timestamp if there is one. The error is of type *Error with code CodeFramework and
// the path of the first failing member.
func ValidateFramework(given any) error {
	message, is := given.(map[string]any)
	if !is {
		return odd("message", "must be an object")
	}

	kind := FrameworkType(value.Text(message["type"]))
	if !kind.Known() {
		return unheard()
	}
	if err := fitting(kind, message); err != nil {
		return err
	}

	if key, there := message["agent_key"]; there || ExecutionTrace.Has(kind) {
		if _, is := value.NonBlank(key); !is {
			return odd("agent_key", "must be a non-empty string")
		}
	}

	if stamp, there := message["timestamp"]; there && !validTimestamp(value.Text(stamp)) {
		return odd("timestamp", "must be an ISO 8601 time")
	}

	if metadata, there := message["metadata"]; there {
		if _, is := value.Object(metadata); !is {
			return odd("metadata", "must be an object")
		}
	}

	return nil
}

func fitting(kind FrameworkType, message map[string]any) error {
	content := message["content"]
	object := value.Assoc(content)
	switch {
	case kind == Action:
		return call(message)
	case content == nil:
		return odd("content", "is required")
	case kind == Failure:
		return needText(object, "content.", "error_message")
	case kind == Final:
		return needText(object, "content.", "operation")
	case kind == StrategicPlan:
		if _, is := object["plan"].(map[string]any); !is {
			return odd("content.plan", "must be an object")
		}
	case kind == SuggestedPlan:
		if _, is := value.List(object["steps"]); !is {
			return odd("content.steps", "must be a list")
		}
	case kind != Observation:
		if _, is := content.(string); !is && !value.Container(content) {
			return odd("content", "must be a string, a list or an object")
		}
	}

	return nil
}

func call(message map[string]any) error {
	if err := needText(message, "", "tool"); err != nil {
		return err
	}
	if _, is := value.Object(message["args"]); !is {
		return odd("args", "must be an object")
	}
	return nil
}

func needText(object map[string]any, path, name string) error {
	if _, is := value.NonBlank(object[name]); !is {
		return odd(path+name, "must be a non-empty string")
	}
	return nil
}

// timestamps are the forms of ISO 8601 that messages use; fractions of a second are read without being named.
var timestamps = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05-0700", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05-07",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04", "20060102T150405Z0700", "20060102T150405", "2006-01-02",
}

func validTimestamp(stamp string) bool {
	for _, layout := range timestamps {
		if _, err := time.Parse(layout, stamp); err == nil {
			return true
		}
	}
	return false
}

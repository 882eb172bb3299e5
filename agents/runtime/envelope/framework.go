package envelope

import "slices"

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

// Types lists the types of the collection.
func (c Collection) Types() []FrameworkType { return slices.Clone(collections[c]) }

// Has tells whether the type belongs to the collection.
func (c Collection) Has(t FrameworkType) bool { return slices.Contains(collections[c], t) }

// FrameworkTypes lists all types of the framework's messages.
func FrameworkTypes() []FrameworkType {
	return []FrameworkType{
		UserMessage, AssistantMessage, Task, Action, Observation, Failure, Final, Synthesis, StrategicPlan, SuggestedPlan,
		ScriptPlan, DirectorContext, InjectedContext, Delegation,
	}
}

// Known tells whether the framework has this type.
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

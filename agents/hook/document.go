package hook

import (
	"encoding/json"

	"inbox/agents/runtime/tool"
	"inbox/identity"
)

// Kinds of a request.
const (
	KindCall   = "tool_call"   // a tool is about to be called
	KindResult = "tool_result" // a tool was called
	KindTurn   = "turn"        // the model answered without calling a tool
	KindEvents = "events"      // what happened
)

// Question is the body of a request that wants an answer. Exactly one of Call, Result and Answer is there.
type Question struct {
	Hook      string        `json:"hook"`
	ID        string        `json:"id"` // the same when the question is asked again, after a crash too
	SentAt    identity.Time `json:"sent_at"`
	Run       Run           `json:"run"`
	Principal Principal     `json:"principal"`
	Turn      int           `json:"turn"` // of the model in this attempt, from 1
	Call      *Call         `json:"call,omitempty"`
	Result    *Result       `json:"result,omitempty"`
	Answer    *Answer       `json:"answer,omitempty"`
}

// Run names the run that a request is about.
type Run struct {
	ID        string `json:"id"` // of the turn; the same in every attempt
	Attempt   int    `json:"attempt"`
	Agent     string `json:"agent"`
	ThreadID  string `json:"thread_id"`
	MessageID string `json:"message_id"`
}

// Principal says who asks, and through whom. It holds no credential.
type Principal struct {
	Address     string     `json:"address"`
	Principal   string     `json:"principal"`
	Evidence    []Evidence `json:"evidence"`
	Channel     string     `json:"channel"`
	ReceivedVia string     `json:"received_via"`
	AgentChain  *Chain     `json:"agent_chain,omitempty"` // only when an agent asks
}

// Evidence is what was proven about the one who asks, without its proof and claims.
type Evidence struct {
	Subject    string   `json:"subject"`
	Issuer     string   `json:"issuer"`
	Method     string   `json:"method"`
	Assurance  string   `json:"assurance,omitempty"`
	OnBehalfOf []string `json:"on_behalf_of,omitempty"`
}

// Chain is the place of the run in a chain of agents that call agents.
type Chain struct {
	Hop     int `json:"hop"`
	MaxHops int `json:"max_hops"`
}

// Call is a tool call before its execution (agent runtime contract, section 4.6).
type Call struct {
	ToolName         string         `json:"tool_name"` // as the model wrote it
	ToolCallID       string         `json:"tool_call_id"`
	Parameters       map[string]any `json:"parameters"`         // as the model wrote them
	RawToolCall      map[string]any `json:"raw_tool_call"`      // as the turn of the model brought it
	PreparedToolCall map[string]any `json:"prepared_tool_call"` // what would be executed
	ToolDeclaration  map[string]any `json:"tool_declaration"`
	IdempotencyKey   string         `json:"idempotency_key"` // the same for equal calls of one run
	TurnContext      map[string]any `json:"turn_context"`    // what tools may know of the turn
	Messages         []Said         `json:"messages"`        // the end of the conversation

	PriorToolResults     []Outcome `json:"prior_tool_results"`     // of the run, with its earlier attempts
	PriorMediatedResults []Outcome `json:"prior_mediated_results"` // of this turn of the model
}

// Said is one message of the conversation. Content is cut; a payload or metadata that is too large is left out.
type Said struct {
	Type     string         `json:"type"`
	Role     string         `json:"role"`
	Content  string         `json:"content"`
	Payload  map[string]any `json:"payload,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Outcome is an earlier call of a tool in the form of an execution result (agent runtime contract, section 3.3).
type Outcome struct {
	ToolName   string         `json:"tool_name"`
	ToolCallID string         `json:"tool_call_id"`
	TurnCount  int            `json:"turn_count"`
	Success    bool           `json:"success"`
	Parameters map[string]any `json:"parameters,omitempty"` // redacted
	Result     map[string]any `json:"result,omitempty"`     // normalized; at most what the model reads
	LeftOut    bool           `json:"left_out,omitempty"`   // the result has no room: newer ones are sent
}

// Result is a tool call that ended.
type Result struct {
	ToolName   string         `json:"tool_name"`
	ToolCallID string         `json:"tool_call_id"`
	Result     map[string]any `json:"result"` // normalized, with its runtime metadata; at most what the model reads
}

// Answer is what the model said.
type Answer struct {
	Content string `json:"content"`
}

// Events is the body of a request that tells what happened, in order.
type Events struct {
	Hook      string        `json:"hook"`
	ID        string        `json:"id"`
	SentAt    identity.Time `json:"sent_at"`
	Run       Run           `json:"run"`
	Principal Principal     `json:"principal"`
	Events    []Event       `json:"events"`
}

// Event is one event of the loop (agent runtime contract, section 3.4). Run and Sequence name it for ever; one that comes again is the
// same to the byte.
type Event struct {
	ID       string          `json:"id"`
	Sequence int64           `json:"sequence"` // from 1 in each run; a gap is a loss
	Attempt  int             `json:"attempt"`
	At       identity.Time   `json:"at"`
	Type     string          `json:"type"`
	Payload  json.RawMessage `json:"payload"`
}

// QuestionID names a question by its run and what it is about.
func QuestionID(run, kind, about string) string {
	return tool.Hash(map[string]any{"run": run, "hook": kind, "about": about})
}

package llm

import (
	"context"
	"encoding/json"
	"iter"
)

// Provider is a model behind an API. Stream asks for one assistant turn and yields it as it comes; calls of tools are
// announced once and their arguments follow in pieces. The last delta before a normal end is a DeltaStop. An error ends
// the stream: a *fault.Fault, with Permanent when the same request cannot succeed, or the cause of the ended context.
// Implementations are safe for concurrent use and do not change the request.
type Provider interface {
	Stream(ctx context.Context, request Request) iter.Seq2[Delta, error]
}

// Request is what a model is asked.
type Request struct {
	Model       string
	System      string
	Messages    []Message
	Tools       []Tool
	NoTools     bool     // the model sees the tools and must answer without calling one
	MaxTokens   int      // of the answer; 0 = the provider's default
	Temperature *float64 // nil = the provider's default
	Whole       bool     // the answer comes in one document instead of a stream
}

// Roles of a Message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Message is one side's turn. Results of tools stand in the user's turn after their calls.
type Message struct {
	Role   string
	Blocks []Block

	// CacheBreakpoint says that the conversation up to here will be the same next time.
	CacheBreakpoint bool
}

// Kinds of a Block.
const (
	BlockText   = "text"        // Text
	BlockImage  = "image"       // MediaType and Data, or URL; user only
	BlockCall   = "tool_call"   // ID, Name and Arguments; assistant only
	BlockResult = "tool_result" // ID, Text and Failed; user only
)

// Block is one piece of a Message.
type Block struct {
	Kind      string
	Text      string
	MediaType string
	Data      []byte
	URL       string
	ID        string          // of the call, also in its result
	Name      string          // of the tool
	Arguments json.RawMessage // an object
	Failed    bool            // the result is an error
}

// Tool is one tool as the model sees it.
type Tool struct {
	Name        string // [A-Za-z0-9_-]{1,64}
	Description string
	Parameters  map[string]any // JSON Schema of an object
}

// Kinds of a Delta.
const (
	DeltaText      = "text"      // Text is appended to the answer
	DeltaToolCall  = "tool_call" // a call begins: Index counts from 0, ID and Name are whole
	DeltaArguments = "arguments" // Text is appended to the JSON text of the arguments of call Index
	DeltaUsage     = "usage"     // Usage so far; replaces the one before
	DeltaStop      = "stop"      // the turn is complete; Stop says why it ended
)

// Why a model stopped. Other values are those of the provider.
const (
	StopEnd       = "end"        // it said what it had to say
	StopToolCalls = "tool_calls" // it waits for results
	StopLength    = "length"     // the answer was cut at a limit of tokens
	StopRefusal   = "refusal"    // the provider's filter or the model refused
)

// Delta is one step of a growing assistant turn.
type Delta struct {
	Kind  string
	Text  string
	Index int
	ID    string
	Name  string
	Usage Usage
	Stop  string
}

// Usage counts tokens of one turn. Input holds all input tokens, those from and for the cache among them.
type Usage struct {
	Input      int64
	Output     int64
	CacheRead  int64
	CacheWrite int64
	Cost       float64 // in the provider's currency, where it says so itself; else 0
}

// Package llm is the agent that a language model answers for: it builds the prompt from a message, runs the model and
// its tools in the loop of agents/runtime/loop, and streams the answer. It holds two codecs, OpenAI-compatible chat
// completions and Anthropic messages, behind one small interface (Provider).
//
// It contains no tool and stores nothing: tools, stored files and parked runs are interfaces that the caller fills. It
// knows two wire formats and no vendor's library.
package llm

import (
	"context"
	"crypto/rand"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// Defaults of Options.
const (
	DefaultMaxTurns  = 12
	DefaultToolCalls = 40
)

// secretBytes is the size of a key of marks.
const secretBytes = 32

// Options configure an Agent. Provider and Model are required.
type Options struct {
	Provider    Provider // see Connect
	Model       string
	System      string   // the operator's own words; who speaks and what the way back carries is added
	MaxTokens   int      // of one answer; 0 = the provider's default
	Temperature *float64 // nil = the provider's default
	Whole       bool     // do not stream the model

	// Secret makes the codes of the marks in prompts: at least 32 random bytes, the same in every run, or caches of providers lose
	// their prompts. Nil = drawn for this agent.
	Secret []byte

	MaxTurns  int           // calls of the model for one message; zero = DefaultMaxTurns. In the last one it must answer
	ToolCalls int           // for one message; zero = DefaultToolCalls
	WallClock time.Duration // no new call of the model after so long, in whole seconds; zero = only the end of the context

	Budgets Budgets // further ceilings
	Rules   []Rule  // orders of tools
	Hooks   Hooks   // programs of the operator that decide and listen

	Tools   []Tools // offered are those that the operator's rules open to the sender, see agents.Turn.Permits
	Actions Actions // how each tool may be used; zero = directly
	// ToolPolicy says which tools the model sees, as the member tool_policy of an agent's configuration does (agent runtime
	// contract, section 4.8). Nil = all that the rules open.
	ToolPolicy map[string]any
	Approvals  Approvals // nil = a tool that needs approval is refused

	Files  exchange.Files   // bytes of stored files, for images and texts; nil = they are only named
	Client *safehttp.Client // fetches images at addresses; nil = they are only named

	Compaction *Compaction // of conversations that are too long; nil = they fail

	Price  Price             // for Response.Metadata; zero = only what the provider says
	Limits normalized.Limits // of the answer; zero = normalized.DefaultLimits

	// Configure changes the options of the loop of one turn, for programs that embed the server. May be nil.
	Configure func(ctx context.Context, turn agents.Turn, options *loop.Options)
	// Observe hears the events of the loop (agent runtime contract, section 3.4). May be nil.
	Observe func(ctx context.Context, turn agents.Turn, name string, payload map[string]any)
}

// Tools is a source of tools. It is safe for concurrent use.
//
// A source with the method Outside() bool that returns true has tools that programs outside execute: its Execute answers
// with the status runtime_tool_pending (agent runtime contract, section 5), and the turn waits for agents.Turn.Requests.
type Tools interface {
	// Declarations returns the tools for a turn. An error ends the turn.
	Declarations(ctx context.Context, turn agents.Turn) ([]tool.Entry, error)
	// Execute runs one of them, by its canonical name; the context of the call has run_id, agent and caller_context.
	tool.Executor
}

// Actions is the operator's action policy: direct, preview or forbidden by tool name or category (agent runtime
// contract, section 4.9). What a tool declares itself comes after it.
type Actions struct {
	Tools      map[string]string // by name, or by a pattern as of path.Match; a name goes before patterns, the strictest of these counts
	Categories map[string]string
}

// Approvals lets a person decide about a call of a tool. It is safe for concurrent use.
type Approvals interface {
	// Ask records a call that waits for a decision and returns its approval_required message (agent runtime contract,
	// section 4.10). An error refuses the call.
	Ask(ctx context.Context, turn agents.Turn, proposal loop.Proposal) (map[string]any, error)
	// Settle returns the result of what a run waits for, as an executor returns it; nil while undecided.
	Settle(ctx context.Context, turn agents.Turn, waiting Waiting) (map[string]any, error)
}

// Waiting is what a run waits for.
type Waiting struct {
	Status   string         `json:"status"` // approval_required, runtime_tool_pending or WaitsForAgents
	ToolName string         `json:"tool_name"`
	CallID   string         `json:"tool_call_id"`
	Request  map[string]any `json:"request"` // the approval_required message, or the runtime tool request
}

// Price is what a million tokens cost. Cached tokens without a price of their own cost as much as the others.
type Price struct {
	Input      float64
	Output     float64
	CacheRead  float64
	CacheWrite float64
	Currency   string // as in "USD"
}

// Agent answers with a model. It is safe for concurrent use.
type Agent struct{ options Options }

// Close drops idle connections to the hook.
func (a *Agent) Close() {
	if a.options.Hooks.Hook != nil {
		a.options.Hooks.Hook.Close()
	}
}

// New checks the options and fills in the defaults. Its faults are fault.Malformed and name the setting.
func New(options Options) (*Agent, error) {
	switch {
	case options.Provider == nil:
		return nil, fault.InField("provider", "is required")
	case options.Model == "":
		return nil, fault.InField("model", "is required: the name under which the provider knows the model")
	case options.Secret != nil && len(options.Secret) < secretBytes:
		return nil, fault.InField("secret", "must have at least 32 bytes")
	case options.MaxTurns < 0 || options.ToolCalls < 0 || options.MaxTokens < 0 || options.WallClock < 0:
		return nil, fault.InField("max_turns", "limits must not be negative")
	case options.Temperature != nil && !(*options.Temperature >= 0 && *options.Temperature <= 2):
		return nil, fault.InField("temperature", "must be between 0 and 2")
	}

	if err := options.Actions.validate(); err != nil {
		return nil, err
	}
	if err := options.Budgets.validate(); err != nil {
		return nil, err
	}
	for i := range options.Rules {
		if err := options.Rules[i].validate(); err != nil {
			return nil, err
		}
	}
	if err := options.Compaction.validate(); err != nil {
		return nil, err
	}

	if options.MaxTurns == 0 {
		options.MaxTurns = DefaultMaxTurns
	}
	if options.ToolCalls == 0 {
		options.ToolCalls = DefaultToolCalls
	}
	if options.Limits == (normalized.Limits{}) {
		options.Limits = normalized.DefaultLimits()
	}

	if options.Secret == nil {
		options.Secret = make([]byte, secretBytes)
		_, _ = rand.Read(options.Secret) // never fails since Go 1.24
	}

	return &Agent{options}, nil
}

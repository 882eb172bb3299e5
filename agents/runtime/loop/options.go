package loop

import (
	"context"
	"maps"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// defaultLockTTL is how long a session stays locked when a run dies (agent runtime contract, section 3.1).
const defaultLockTTL = 300 * time.Second

// Options of a run; the zero value runs one turn (agent runtime contract, section 3.1).
type Options struct {
	MaxTurns int            // least and default 1; Overrides.max_iterations caps it
	Context  map[string]any // handed to runner and tools; each turn adds "turn"

	Executors    tool.Executors    // with at least one valid declaration they turn mediation on
	Declarations []tool.Entry      // tools as declared; invalid ones are reported and dropped
	Tools        tool.Declarations // tools that were normalized before; used when Declarations is empty

	// ShouldContinue decides after each turn. When nil: go on while a mediated turn had tool calls, else stop after one
	// turn; SingleTurn stops after one turn also then.
	ShouldContinue func(ctx context.Context, result, turn map[string]any) (bool, error)
	SingleTurn     bool

	CompletionPolicy CompletionPolicy
	Budgets          []*Budget // changed by the run; not shared between runs
	SpinDetector     SpinDetector
	FailureTracker   FailureTracker
	Truncator        Truncator
	ToolCallRules    any // list of rules (section 3.7); invalid ones are dropped
	Mediator         Mediator

	// Diagnostics sees every tool result and may add an object to records and events. Its failures change nothing.
	Diagnostics func(ctx context.Context, about map[string]any) (map[string]any, error)

	Interrupts       InterruptSource
	CompactionPolicy map[string]any // with Summarizer (section 3.9)
	Summarizer       Summarizer
	Archive          Archive // nil: what an overflow archive takes out is gone from the transcript

	Lock      Lock
	LockTTL   time.Duration // default 300 s, least 1 s
	SessionID string        // trimmed; else transcript_session_id, session_id or transcript_id of Request.Metadata
	RunID     string        // trimmed; else run_id or chat_run_id of Request.Metadata
	Control   RunControl    // used when there are a run id and a session id

	Persister    Persister
	RequestStore RequestStore

	Principal map[string]any // put into Context as "principal" unless that is there
	Workspace map[string]any
	Metadata  map[string]any // of the Request
	Overrides map[string]any // runtime overrides: max_iterations, and members copied into Context

	Provider         ProviderAdapter // used instead of the runner
	Model            map[string]any
	Runtime          map[string]any
	OnDelta          func(delta map[string]any)
	StructuredOutput any // {schema, name?, strict?, format?} or *StructuredOutput; excludes tools and OnDelta

	Observer Observer
}

// withOverrides caps the turns and copies what overrides say into a context of its own.
func (o Options) withOverrides() Options {
	if limit := value.Int32(o.Overrides["max_iterations"]); limit > 0 && (o.MaxTurns == 0 || o.MaxTurns > limit) {
		o.MaxTurns = limit
	}
	o.MaxTurns = max(1, o.MaxTurns)
	own := maps.Clone(o.Context)
	if own == nil {
		own = map[string]any{}
	}
	for name, given := range o.Overrides {
		if given != nil && (!value.Container(given) || value.Truthy(given)) {
			own[name] = given
		}
	}
	if o.Principal != nil && own["principal"] == nil {
		own["principal"] = o.Principal
	}
	o.Context = own
	if o.LockTTL == 0 {
		o.LockTTL = defaultLockTTL
	}
	o.LockTTL = max(time.Second, o.LockTTL)
	o.SessionID = identify(o.SessionID, o.Metadata, "transcript_session_id", "session_id", "transcript_id")
	o.RunID = identify(o.RunID, o.Metadata, "run_id", "chat_run_id")
	return o
}

// identify takes the id that was given, or the first one of the metadata that is not blank.
func identify(given string, metadata map[string]any, names ...string) string {
	if id := value.Trim(given); id != "" {
		return id
	}
	for _, name := range names {
		if id, has := value.NonBlank(metadata[name]); has {
			return id
		}
	}
	return ""
}

// structuredOutput reads the option, which excludes tools and streaming.
func (o *Options) structuredOutput(declared int) (*StructuredOutput, error) {
	if o.StructuredOutput == nil {
		return nil, nil
	}
	output, parsed := o.StructuredOutput.(*StructuredOutput)
	if !parsed {
		var err error
		if output, err = ParseStructuredOutput(o.StructuredOutput); err != nil {
			return nil, err
		}
	}
	if output != nil && (declared > 0 || o.OnDelta != nil) {
		return nil, errStructuredMixed()
	}
	return output, nil
}

func (o *Options) request(messages []envelope.Envelope) Request {
	return Request{
		Messages: slices.Clip(messages), Context: o.Context, Metadata: o.Metadata, Principal: o.Principal, Workspace: o.Workspace,
		Overrides: o.Overrides, MaxTurns: o.MaxTurns,
	}
}

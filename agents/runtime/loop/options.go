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

// defaultLockTTL is how long a transcript stays locked after its process died (agent runtime contract, section 3.1).
const defaultLockTTL = 300 * time.Second

// Options of a run; the zero value runs one turn (agent runtime contract, section 3.1).
type Options struct {
	MaxTurns int            // least and default 1
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

	Interrupts InterruptSource // polled after each turn that did not complete the conversation (section 3.8)

	CompactionPolicy map[string]any // with Summarizer (section 3.9)
	Summarizer       Summarizer

	SessionID string     // trimmed; else transcript_session_id, session_id or transcript_id of Metadata
	RunID     string     // trimmed; else run_id or chat_run_id of Metadata
	Control   RunControl // used when there are a run id and a session id

	// TranscriptLock is acquired for SessionID before the first turn. It is the option transcript_lock of the contract, which
	// transcript_lock_store also names. A run without a session id is not locked.
	TranscriptLock    TranscriptLock
	TranscriptLockTTL time.Duration // default 300 s, least 1 s

	TranscriptPersister TranscriptPersister
	RequestStore        RequestStore

	Principal map[string]any // put into Context as "principal" unless that is there
	Metadata  map[string]any // session and run ids are also looked up here

	Provider         ProviderAdapter // used instead of the runner
	Model            map[string]any
	Runtime          map[string]any
	OnDelta          func(delta map[string]any)
	StructuredOutput any // {schema, name?, strict?, format?} or *StructuredOutput; excludes tools and OnDelta

	Observer Observer
}

// resolved fills what was left out, in a context of its own.
func (o Options) resolved() Options {
	o.MaxTurns = max(1, o.MaxTurns)
	own := maps.Clone(o.Context)
	if own == nil {
		own = map[string]any{}
	}

	if o.Principal != nil && own["principal"] == nil {
		own["principal"] = o.Principal
	}

	o.Context = own
	if o.TranscriptLockTTL == 0 {
		o.TranscriptLockTTL = defaultLockTTL
	}
	o.TranscriptLockTTL = max(time.Second, o.TranscriptLockTTL)

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

// request returns the input of the run with the transcript so far.
func (o *Options) request(messages []envelope.Envelope) Request {
	return Request{
		Messages: slices.Clip(messages), Context: o.Context, Metadata: o.Metadata, Principal: o.Principal, MaxTurns: o.MaxTurns,
		SessionID: o.SessionID, RunID: o.RunID,
	}
}

// Request is the input of a run for a TranscriptPersister and an InterruptSource. Nothing in it may be changed.
type Request struct {
	Messages  []envelope.Envelope // the transcript so far
	Context   map[string]any
	Metadata  map[string]any
	Principal map[string]any // nil = none
	MaxTurns  int
	SessionID string
	RunID     string
}

// Runner returns one assistant turn for a transcript: normally a call of a model. The result is an object with content,
// tool_calls, messages, usage and so on (agent runtime contract, sections 3.2 and 3.3); anything else is an error of the
// runner. An error ends the run as failed; its text reaches the transcript's readers unless it carries a fault. The
// messages and the context must not be changed.
type Runner interface {
	Turn(ctx context.Context, messages []envelope.Envelope, turn map[string]any) (any, error)
}

// Observer hears every event of a run in order, from the goroutine of Run (names: section 3.4). It must not change the
// payload. Its panics change nothing.
type Observer interface {
	Observe(name string, payload map[string]any)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(name string, payload map[string]any)

// Observe calls f.
func (f ObserverFunc) Observe(name string, payload map[string]any) { f(name, payload) }

// CompletionPolicy decides after each tool result whether the conversation is complete. An error ends the run.
type CompletionPolicy interface {
	RecordToolResult(ctx context.Context, result ToolResult) (Decision, error)
}

// ToolResult is what a CompletionPolicy judges.
type ToolResult struct {
	ToolName    string            // the name that the model used
	Declaration *tool.Declaration // nil when the tool is not declared
	Result      map[string]any    // normalized; the whole execution result when the runner executed the tool itself
	Context     map[string]any    // of the turn
	Turn        int
}

// Decision is what a CompletionPolicy found. Message, unless blank, tells the model how to go on while incomplete.
type Decision struct {
	Complete bool
	Message  string
	Context  map[string]any
}

// Mediator may decide about a call after it was prepared and before it is executed. A decision is an object {action:
// proceed | reject | replace_result | pending, …} (agent runtime contract, section 4.6); nil, anything invalid, an error
// and a panic mean proceed.
type Mediator interface {
	Decide(ctx context.Context, proposal Proposal) (any, error)
}

// MediatorFunc makes a Mediator of a function.
type MediatorFunc func(ctx context.Context, proposal Proposal) (any, error)

// Decide calls f.
func (f MediatorFunc) Decide(ctx context.Context, proposal Proposal) (any, error) {
	return f(ctx, proposal)
}

// Proposal is a tool call before its execution. Nothing in it may be changed.
type Proposal struct {
	Messages             []envelope.Envelope // the transcript, with the call as its last message
	RawToolCall          map[string]any
	PreparedToolCall     map[string]any // nil when the call could not be prepared
	ToolDeclaration      *tool.Declaration
	ToolName             string
	Parameters           map[string]any // raw, as the model wrote them
	ToolCallID           string
	TurnContext          map[string]any
	Turn                 int
	PriorToolResults     []any // execution results of the run so far
	PriorMediatedResults []any // those of this turn
}

// InterruptSource returns a message that reached the conversation during a run, or nil. The message is an object, or an
// envelope.Envelope. Its metadata.interrupt_action, else metadata.action, is cancel, redirect or message, and anything else is
// message. Cancel ends the run with status interrupted; the others are appended to the transcript, and the next turn reads them.
// The source is also polled once when the context of the run ends, because it may know who ended it. An error ends the run
// (agent runtime contract, section 3.8).
type InterruptSource interface {
	Poll(ctx context.Context, request Request, turn map[string]any) (any, error)
}

// TranscriptLock permits one run at a time in a session (agent runtime contract, section 3.2).
type TranscriptLock interface {
	// Acquire returns a token, or "" if another run holds the session. An error ends the run before its first turn.
	Acquire(ctx context.Context, sessionID string, ttl time.Duration) (token string, err error)
	// Release is called once for every token, also after a failed run. Its errors and panics change nothing. The context is not
	// cancelled with the run.
	Release(ctx context.Context, sessionID, token string) error
}

// TranscriptPersister stores the transcript and the normalized result of a run: once per run, after its last turn and before the
// event completed. It is not called for a run that did not get its lock. Its errors and panics change nothing. The context is not
// cancelled with the run (agent runtime contract, section 3.2).
type TranscriptPersister interface {
	Persist(ctx context.Context, messages []envelope.Envelope, request Request, result map[string]any) error
}

// RequestStore keeps runtime tool requests that wait for someone outside, and returns the request as stored. A
// request.Lifecycle is one.
type RequestStore interface {
	Create(ctx context.Context, request, loopContext map[string]any) (map[string]any, error)
}

// RunControl knows runs by id and who asked to cancel them (agent runtime contract, section 6.6).
type RunControl interface {
	Start(ctx context.Context, runID, sessionID string) error
	// Cancelling reports whether someone asked to cancel the run. An error counts as no.
	Cancelling(ctx context.Context, runID string) (bool, error)
	// Finish stores the status at the end of a run. The context is not cancelled with the run.
	Finish(ctx context.Context, runID, status string) error
}

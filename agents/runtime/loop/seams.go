package loop

import (
	"context"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
)

// Runner gives one assistant turn for a transcript: normally a call of a model. The result is an object with content,
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

// Persister keeps a transcript once its run has ended, before the event completed. Its errors and panics change
// nothing. The context is not cancelled with the run.
type Persister interface {
	Persist(ctx context.Context, messages []envelope.Envelope, request Request, result map[string]any) error
}

// Lock lets one run at a time into a session.
type Lock interface {
	// Acquire gives a token, or "" when somebody else holds the session.
	Acquire(ctx context.Context, sessionID string, ttl time.Duration) (token string, err error)
	// Release is called once for every token; its errors and panics change nothing. The context is not cancelled.
	Release(ctx context.Context, sessionID, token string) error
}

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

// InterruptSource is asked after each turn that did not complete the conversation. It gives a message (object), or nil.
// An error ends the run (agent runtime contract, section 3.8).
type InterruptSource interface {
	Poll(ctx context.Context, request Request, turn map[string]any) (any, error)
}

// RequestStore keeps runtime tool requests that wait for somebody outside, and gives the request as stored. A
// request.Lifecycle is one.
type RequestStore interface {
	Create(ctx context.Context, request, loopContext map[string]any) (map[string]any, error)
}

// RunControl knows runs by id and who asked to cancel them (agent runtime contract, section 6.6).
type RunControl interface {
	Start(ctx context.Context, runID, sessionID string) error
	// Cancelling says whether somebody asked to cancel the run. An error counts as no.
	Cancelling(ctx context.Context, runID string) (bool, error)
	// Finish stores the status at the end of a run. The context is not cancelled with the run.
	Finish(ctx context.Context, runID, status string) error
}

// Archive keeps what an overflow archive took out of a transcript, under the id that the transcript names. When it
// fails the transcript stays as it is.
type Archive interface {
	Keep(ctx context.Context, archiveID string, items []envelope.Envelope) error
}

// Request is the immutable input of a run, for those who are asked about it.
type Request struct {
	Messages  []envelope.Envelope // for an InterruptSource and a Persister: the transcript so far
	Context   map[string]any
	Metadata  map[string]any // session and run ids are also looked up here
	Principal map[string]any // the acting principal, as JSON; nil = none
	Workspace map[string]any
	Overrides map[string]any // runtime overrides
	MaxTurns  int
}

// Package agents is the seam between the engine and whatever answers: the Agent interface, the registry of agents
// by name and the events of a growing answer. It knows no protocol and no storage.
package agents

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// Turn is everything an agent gets for one message.
type Turn struct {
	ID      string // UUIDv7; the same in every attempt
	Attempt int    // from 1; a higher number means that an earlier run did not come to its end

	// AcceptedAt is when this server took the message; a turn can be hours old when the agent was down. Zero = not known.
	AcceptedAt time.Time

	Agent string // name, the local part of the address

	Message normalized.Message // with history, already trimmed; agents never trim again

	// HistoryCacheBreakpointAfter is the index in Message.History after which the prefix will be the same next
	// time; nil when there is no history (message contract, section 4).
	HistoryCacheBreakpointAfter *int

	// NotAddressed lists whom the agent's last answer in the conversation named in its text, but not in to or cc, so that it was
	// not sent to them (message contract, section 6). Empty = no one.
	NotAddressed []string

	// Handover is what happened since the agent's last turn in the conversation: an operator answered in its place. Nil = nothing of the
	// kind. The operator's answers are in the history as the agent's own.
	Handover *Handover

	// Permits reports whether the operator's rules let the sender use the agent for a purpose: "tool:<name>" or
	// "skill:<id>" (message contract, section 10). Tools and skills are closed until a rule opens them. Nil permits
	// nothing.
	Permits func(purpose string) bool

	// Steps takes what the agent did on its way, for the timeline that operators see: a kind and its body, such as
	// exchange.EventModelCalled and exchange.ModelStep. It is written together with the next note, piece of the answer or
	// end of the run, and costs nothing until then. Safe for concurrent use. Nil where no timeline is kept; see Did.
	Steps func(kind string, body any)

	// KeepResult takes the conversation result of the run (agent runtime contract, section 2) as one JSON object of at most MaxResult
	// bytes. It is written together with the next note or with the end of the run, and a later one of the same run replaces it. It holds
	// nothing of other turns: it is erased with this one. Safe for concurrent use. Nil where no results are kept.
	KeepResult func(document []byte)

	// Answers are those of the agents that the turn asked in earlier runs (normalized.Response.Dispatch), in the order of
	// the questions. Message.ReceivedTrace has them joined.
	Answers []Answer

	// Files opens what does not travel inside of the message: its larger files and its native original. Nil where the bytes cannot be
	// had.
	Files Files

	// Memory keeps what the agent must know again when the same turn runs once more: after a crash, or after a demand
	// was met. Nil where nothing is kept.
	Memory Memory

	// Requires are the labels that a program must have to work on the turn, sorted; a Labelled agent sees to it.
	Requires []string

	// Format is the form that the answer has to have; nil = any. Only a Formatting agent gets one.
	Format *exchange.Format

	// Returnable says that the turn comes again by itself when it is given back with ErrNoWorker.
	Returnable bool

	// Interrupt returns why the run is to stop, nil while it may go on: its turn was cancelled, or an operator has taken the conversation
	// over. It reads memory, no row. Safe for concurrent use. Nil where nothing interrupts runs.
	Interrupt func() *Interrupt

	// Lease returns the lease of the conversation under which the run works, and whether it still holds. A run that lost its lease
	// is not to begin anything: another node may have its turn. It reads memory, no row. Safe for concurrent use. Nil where a
	// conversation has no other runs.
	Lease func() (lease string, held bool)

	// Requests lets the turn wait for programs outside that execute tools. Nil where none can be waited for: such tools
	// are then not to be offered.
	Requests ToolRequests
}

// Interrupt says who stops a run, and why.
type Interrupt struct {
	Source string // InterruptCancel or InterruptTakeover
	Reason string // for the operator
}

// Sources of an Interrupt.
const (
	InterruptCancel   = "cancel"   // the turn has ended: its asker, a program or an operator cancelled it. The context of the run ends, too
	InterruptTakeover = "takeover" // an operator has the conversation. What the run says becomes a draft, and the turn runs again afterwards
)

// ErrLeaseLost ends a run that lost the lease of its conversation before it began.
var ErrLeaseLost = errors.New("another run may have the conversation: its lease is over")

// Handover says that an operator had the conversation and handed it back.
type Handover struct {
	Since time.Time
	Until time.Time
	Note  string // of the operator for the agent, at most MaxHandoverNote bytes; it is not for the asker. Empty = none
}

// MaxHandoverNote bounds the note of a Handover, in bytes.
const MaxHandoverNote = 4 << 10

// Files are the bytes of one turn: those to which its message and the answers of other agents in it refer by digest, the native
// original (Message.Raw), and what the agent adds for its answer. An answer names no other bytes by digest.
type Files interface {
	// Address returns an address under which a program elsewhere reads a content of the turn until it expires, without further proof;
	// "" where there is none.
	Address(digest string) (address string, expires time.Time)
	// Open returns a content; the caller closes it. NotFound when the turn has no such content.
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
	// Put keeps a content that the answer of this run may refer to (normalized.Stored). TooLarge over 64 MiB.
	Put(ctx context.Context, from io.Reader) (digest string, size int64, err error)
}

// Did writes a step to the timeline, where one is kept.
func (t *Turn) Did(kind string, body any) {
	if t.Steps != nil {
		t.Steps(kind, body)
	}
}

// Answer is what another agent said to a question of this turn.
type Answer struct {
	To       string // the address that was asked
	Response normalized.Response
}

// Bounds of one turn that asks other agents. Further questions end it.
const (
	MaxQuestionRounds = 4 // questions, answers, run again
	MaxQuestions      = 8
)

// MaxResult bounds what KeepResult takes, in bytes. A larger document is left out, and its row says so.
const MaxResult = 1 << 20

// MaxMemory bounds what Memory keeps of one turn, in bytes.
const MaxMemory = 4 << 20

// Memory is the durable note of one turn. What Save was given when it returned without error is what Load returns to a
// later run on any node. It is forgotten a week after the last Save.
type Memory interface {
	// Load returns the note; nil when there is none. Errors are fault.Unavailable.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces the note. TooLarge over MaxMemory, Unavailable when it is not kept.
	Save(ctx context.Context, note []byte) error
}

// ToolRequests are the calls of tools that programs outside of the server execute (agent runtime contract, section 5).
type ToolRequests interface {
	// Await lets the turn wait for a request, in normalized form, instead of being answered: what the run yields is not
	// sent. The request is stored together with the end of the run, and the same turn runs again once it has a result. A
	// later Await replaces an earlier one. Errors are fault.Malformed.
	Await(request map[string]any) error
	// Request returns a request as it is stored (request.Outcome reads it); nil when none has the id. Errors are
	// fault.Unavailable.
	Request(ctx context.Context, id string) (map[string]any, error)
}

// Agent answers turns. Handle yields the deltas of the answer; their fold is the Response. An error ends the turn as
// failed (or repeats it, when fault says that a retry may succeed). Handle must be re-entrant: after a crash the same
// Turn comes again with a higher Attempt. It stops when ctx ends.
type Agent interface {
	Handle(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error]
}

// ErrNoWorker puts a turn back of which nothing was done: what works for the agent is not there now. The turn waits
// without a run until Limited.Limit grows.
var ErrNoWorker = errors.New("nothing works for the agent now")

// Limited is an Agent whose turns are worked on by others, who come and go.
type Limited interface {
	Agent
	// Limit returns how many turns it may have at once on this node now; those beyond it wait without a run. It does not
	// block.
	Limit() int
}

// Labelled is a Limited whose programs have labels: a turn goes to one that has all that the turn requires.
type Labelled interface {
	Limited
	// LimitFor is Limit for turns that require the labels, sorted, beside those that require others.
	LimitFor(requires []string) int
}

// Formatting is an Agent that can hold its answers to a form.
type Formatting interface {
	Agent
	// Formats reports whether it can do so for a kind of exchange.Format.
	Formats(kind string) bool
}

// Func makes an Agent of a function.
type Func func(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error]

// Handle calls f.
func (f Func) Handle(ctx context.Context, turn Turn) iter.Seq2[normalized.Delta, error] {
	return f(ctx, turn)
}

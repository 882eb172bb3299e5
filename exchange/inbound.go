// Package exchange is what adapters and the engine hand to each other: a message on its way in with the things
// that only the server needs, a reply on its way out, the stored record of a turn and its events. Agents never see
// these types; their contract is package normalized. It holds shapes only and does no input or output.
package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Trace is the trace to which the sender of a message says that it belongs.
type Trace struct {
	Parent  string // header traceparent of W3C Trace Context; empty = none
	Decided bool   // the sender may decide whether it is recorded; otherwise only the id is taken
}

// Inbound is a message on its way in. None of the extra fields ever reaches an agent.
type Inbound struct {
	Message normalized.Message // Raw.MediaType set by the adapter; Raw.Ref is computed on acceptance
	Channel string             // name of the adapter's channel, by which the answer leaves (Module.Name); required

	Original  []byte          // the native bytes as received; stored once, content-addressed
	Files     Contents        // to which parts of the message refer by their digest; stored with the message
	Route     json.RawMessage // the adapter's own notes on how to answer; opaque to all other packages but for RouteWords and RouteHistory
	Reference string          // the adapter's conversation handle beside the thread (A2A: task id); may be empty
	// Conversation is what the peer calls the conversation where that is not the id of the thread (a session, a context), so that
	// the operator finds the message by it; may be empty.
	Conversation string
	Repeats      bool   // the peer reads a refusal and sends the same message again by itself, as mail servers do
	Quiet        bool   // the sender asks programs not to write unasked (#nobot): no notice, no acknowledgement
	NoReply      string // why this must never be answered (automatic mail, loop); the turn is stored as silent
	// Doubted says that NoReply is a guess: a person may have written the message. A proven sender is told so once in a day.
	Doubted bool

	Audience Audience // whom else the message was meant for

	Trace    Trace     // of an authenticated program; optional
	AnswerOf time.Time // when our answer was made that this one answers; zero = it answers none of ours, or that is unknown
	// Opens says that nothing of the message's thread came before it: nothing has to be looked up about the thread.
	Opens bool

	// Client is the address that brought the message, behind trusted proxies; the zero Addr = unknown. It is never stored: a
	// sender without proof is counted by a keyed hash of its network (TurnRecord.Network).
	Client netip.Addr

	// Chain names what led to a message whose sender took no part in a conversation before: an answer of ours to someone else, or
	// the subject of a reply. Such messages are counted together, because a program may write from a new address each time. Empty = the message
	// begins a conversation, or goes on in its sender's.
	Chain string
	// Astray says that the message answers an answer of ours to someone else.
	Astray bool

	NewThread    bool // Message.ThreadID was made for this message, and no other sender can know it yet
	NewReference bool // Reference was made for this message, and no other message can have it yet

	FromAgent  bool                 // the sender is a program that answers by itself: automated actor, chained task, mail with the chain hint
	Continues  string               // id of a parked turn that this message takes up; the parked turn is dropped
	Claim      *Claim               // a document of the adapter that stands or falls with the message; nil = none
	Task       *TaskRun             // the run that the message begins, stored with it; nil = none
	Settlement *Settlement          // what the message offers for an open demand; nil = nothing
	Rejected   []identity.Rejection // evidence that was offered and not accepted; it becomes audit rows
}

// Contents are the files of a message that are too large for it. An adapter hands them over in memory, and only the engine
// stores them, after its last check, so that a refused message leaves nothing on disk. It is a normalized.Keeper.
type Contents map[string][]byte

// Put adds a file and returns its digest and its size.
func (c Contents) Put(_ context.Context, from io.Reader) (digest string, size int64, err error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return "", 0, fmt.Errorf("read a file: %w", err)
	}

	return c.Add(content), int64(len(content)), nil
}

// Add adds a file and returns its digest.
func (c Contents) Add(content []byte) (digest string) {
	digest = normalized.Digest(content)
	c[digest] = content
	return digest
}

// RouteWords is the member of Inbound.Route under which an adapter keeps what of a message's own words the normalized form does
// not have. It is removed when the message is erased.
const RouteWords = "words"

// Settlement is what a message offers to meet a demand. Nothing in it is accepted before the eight checks of the
// message contract, section 9.
type Settlement struct {
	Resolution *policypart.Resolution // as the peer wrote it; InReplyToState names the demand
	Payment    json.RawMessage        // x402 payment payload for the demand of Inbound.Continues
	Envelopes  []identity.Evidence    // signed resumption envelopes of Connectors, already validated as evidence
}

// Receipt tells an adapter what became of an accepted message.
type Receipt struct {
	TurnID    string
	New       bool   // false: the same message was accepted before and nothing was done
	State     string // state of the turn, see the State constants
	Reference string // Inbound.Reference of the stored turn; for a duplicate, that of the first copy
	Claimed   []byte // the document in the place of Inbound.Claim; nothing was stored then
	TaskTaken bool   // the id of Inbound.Task is another run's; nothing was stored then
}

// WaitingDispatch is the reason of a turn in StateWaiting that goes on by itself as soon as other agents have answered:
// no one has to do anything about it.
const WaitingDispatch = "dispatch"

// States of a Dispatch.
const (
	DispatchPending = "pending"
	DispatchDone    = "done"
)

// Kinds of an Event about calls of other agents.
const (
	EventDispatchCalled   = "dispatch.called"   // body: {"id","to"}
	EventDispatchAnswered = "dispatch.answered" // body: {"id","to","status"}
)

// Dispatch is one call of one of our agents to another agent, here or elsewhere, while its own turn waits. The one with
// Number 0 is no call: it keeps the answer to which the others are added (Combine).
type Dispatch struct {
	ID        string                `json:"id"` // UUIDv7; also the id of the message on the wire, so that a repeat is recognised
	TurnID    string                `json:"turn_id"`
	Number    int                   `json:"number"`    // counts the calls of the turn from 1
	Agent     string                `json:"agent"`     // name of the calling agent
	From      string                `json:"from"`      // its address
	To        string                `json:"to"`        // address of the agent that is called
	ThreadID  string                `json:"thread_id"` // the same for every call of one conversation of Agent to To
	Parts     []normalized.Part     `json:"parts"`
	Chain     normalized.AgentChain `json:"chain"`
	Sender    normalized.Sender     `json:"sender"`  // of the turn's message: on whose behalf the call is made
	Combine   bool                  `json:"combine"` // a mention that the way back cannot relay; false: the agent asked for the call
	State     string                `json:"state"`
	Response  *normalized.Response  `json:"response,omitempty"` // nil until done
	CreatedAt time.Time             `json:"created_at"`         // the same for the calls of one round
	UpdatedAt time.Time             `json:"updated_at"`
}

// Historian is a Channel whose messages may answer something that this server never got: a conversation that it enters
// late.
type Historian interface {
	Channel
	// Late reports whether something was said before the message that is not stored here. It is pure.
	Late(turn TurnRecord) bool
	// Ancestors finds what was said before the message of the turn and may be shown in its history, oldest first. It
	// asks other servers, within bounds of its own, and returns what it got. Its error means that nothing was tried.
	Ancestors(ctx context.Context, turn TurnRecord) ([]normalized.HistoricalMessage, error)
}

// BadLine is a line of an import that was left out.
type BadLine struct {
	Line int    `json:"line"`
	Text string `json:"text"` // its beginning
	Why  string `json:"why"`
}

// ImportResult is what an import of a list did, or would do.
type ImportResult struct {
	Read      int       `json:"read"`      // lines that name a target
	Added     int       `json:"added"`     // entries that were not there, or not so
	Unchanged int       `json:"unchanged"` // entries that were there already
	Bad       []BadLine `json:"bad"`       // at most MaxBadLines of them
	BadLines  int       `json:"bad_lines"`
	Cancelled int       `json:"cancelled"` // accepted messages of senders who are blocked now
	DryRun    bool      `json:"dry_run"`
}

// MaxBadLines bounds ImportResult.Bad.
const MaxBadLines = 100

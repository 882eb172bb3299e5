package exchange

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/normalized"
)

// States of a turn. Transitions are conditional updates in the store and each writes a row to the timeline.
const (
	StateAccepted  = "accepted"
	StateRunning   = "running"
	StateAnswered  = "answered"
	StateRefused   = "refused"
	StateFailed    = "failed"
	StateWaiting   = "waiting" // for consent, payment, approval, a tool or an operator; the reason says which
	StateSilent    = "silent"
	StateHeld      = "held"      // unverified sender; waits for the operator
	StateCancelled = "cancelled" // the sender took it back before an answer
)

// States lists the states of a turn.
func States() []string {
	return []string{
		StateAccepted, StateRunning, StateAnswered, StateRefused, StateFailed, StateWaiting, StateSilent, StateHeld, StateCancelled,
	}
}

// Terminal reports whether a turn in the state will not change by itself any more.
func Terminal(state string) bool {
	switch state {
	case StateAnswered, StateRefused, StateFailed, StateSilent, StateCancelled:
		return true
	}
	return false
}

// Settled reports whether no caller needs to wait for a turn in the state any longer: it ended, or it waits for someone
// itself.
func Settled(state string) bool {
	return Terminal(state) || state == StateWaiting || state == StateHeld
}

// UnreadCount is how many conversations an operator has not read.
type UnreadCount struct {
	Conversations int
	More          bool // there are more than are counted
	Older         bool // there are messages that were not looked at, because there are so many newer ones
}

// Partial reports whether there may be more than are counted.
func (c UnreadCount) Partial() bool { return c.More || c.Older }

// TurnRecord is the stored row of one message to one agent and its answer.
type TurnRecord struct {
	ID        string             `json:"id"`                // UUIDv7
	Agent     string             `json:"agent"`             // name, the local part of the address
	Principal string             `json:"principal"`         // normalized.Sender.Principal of the sender: who speaks
	Carrier   string             `json:"carrier,omitempty"` // normalized.Sender.Carrier: who brought the message; empty = the speaker
	ThreadID  string             `json:"thread_id"`
	Reference string             `json:"reference,omitempty"`
	State     string             `json:"state"`
	Reason    string             `json:"reason,omitempty"` // why it is in the state, for the operator
	Attempt   int                `json:"attempt"`          // runs started so far
	Channel   string             `json:"channel"`          // by which the message came and its answer leaves; see Module.Name
	Message   normalized.Message `json:"message"`          // with PolicyResolution and ReceivedTrace once it was resumed
	Encoded   []byte             `json:"-"`                // Message without its history as JSON, for who stores the turn; empty = the store encodes it
	Begins    bool               `json:"-"`                // Reference was made for the turn, so that no earlier turn has it; not stored
	Audience  Audience           `json:"-"`                // Parties are written and not read back: Store.PartiesOf lists them
	Shared    bool               `json:"-"`                // the agent's history follows the person, so that it is looked up by sender
	Route     json.RawMessage    `json:"-"`
	// Network names the network (/32 of IPv4, /64 of IPv6) of a sender without proof by a keyed hash; empty for senders with
	// proof and where the address is not known. It stands for such a sender wherever senders get a share of something.
	Network string `json:"-"`
	Trace   string `json:"-"` // traceparent of the span that accepted it; empty = none
	// Conversation is what the peer calls the conversation (Inbound.Conversation). It is written and never read back: the operator
	// looks for it.
	Conversation string `json:"-"`
	// Request is the header X-Request-Id of the answer to the HTTP request that brought the message; empty = it came another way.
	Request    string               `json:"request,omitempty"`
	ReplyID    string               `json:"reply_id,omitempty"` // empty until answered
	Retried    string               `json:"-"`                  // the answer that the turn had before the operator ran it again; empty = it was not
	Written    *WrittenAnswer       `json:"-"`                  // what an operator wrote as its answer; nil = it is the agent's
	Said       []SaidAnswer         `json:"-"`                  // its answers before the one of ReplyID, oldest first
	Response   *normalized.Response `json:"response,omitempty"` // nil until answered
	AcceptedAt time.Time            `json:"accepted_at"`
	UpdatedAt  time.Time            `json:"updated_at"`
	ExpiresAt  *time.Time           `json:"expires_at,omitempty"` // when a held message leaves hold by itself; lists have it
}

// BroughtBy returns the principal of who brought the message: its carrier, or its speaker who came without one.
func (t TurnRecord) BroughtBy() string { return cmp.Or(t.Carrier, t.Principal) }

// OthersRead reports whether other people than its sender read the message, and so what is said to all of its readers: its audience is open
// or named, it was posted to more than one reader, or it has further recipients.
func (t TurnRecord) OthersRead() bool {
	if t.Audience.Open || len(t.Audience.Parties) > 0 {
		return true
	}
	surface := t.Message.Surface
	if surface == nil {
		return false
	}
	posted := surface.Visibility != "" && surface.Visibility != normalized.VisibilityDirect
	return posted || len(surface.To)+len(surface.Cc)+surface.Omitted > 1 || slices.ContainsFunc(slices.Concat(surface.To, surface.Cc), t.isOther)
}

// isOther reports whether an address that a message lists is not that of its agent, with any tag: the agent was told besides, as in Bcc.
func (t TurnRecord) isOther(listed normalized.SurfaceRecipient) bool {
	local, domain, _ := strings.Cut(strings.TrimPrefix(listed.Address, "@"), "@")
	local, _, _ = strings.Cut(local, "+")
	return !strings.EqualFold("@"+local+"@"+domain, t.Message.Recipient)
}

// TurnFilter selects turns, newest update first. Empty fields do not restrict. What is listed page by page names what the
// list is about: a thread, an owner (agent and carrier) with ByArrival or Latest, or States; then a page costs the same
// whatever else is stored.
type TurnFilter struct {
	Agent     string
	Principal string // who speaks; with Agent only where they came without a carrier
	Carrier   string // with Agent: who brought the messages, be it those of others or their own
	ThreadID  string
	// Conversation, with Carrier and ThreadID, also selects what the carrier brought for others in the conversation that it calls so.
	Conversation string
	Reference    string
	MessageID    string // native id of the message
	ReceivedVia  string
	States       []string
	Standing     string // with Latest; see StandingOf
	UpdatedAfter time.Time
	// AcceptedAfter restricts what is listed ByArrival to turns that were accepted at the instant or later, to a millisecond.
	AcceptedAfter time.Time

	Before    string // TurnCursor of the last row of the page before
	Limit     int    // 1…500
	Dropped   bool   // only what was dropped from hold and still has its content; ExpiresAt is when it is erased
	Latest    bool   // only the newest turn of each (agent, carrier, reference); turns without reference are left out
	ByArrival bool   // newest arrival first instead of newest update
}

// TurnCursor names a row of a list of turns: "<updated_at microseconds>.<turn id>".
func TurnCursor(turn TurnRecord) string {
	return strconv.FormatInt(turn.UpdatedAt.UnixMicro(), 10) + "." + turn.ID
}

// Kinds of an Event beside the turn's states, which are written as "turn.<state>".
const (
	EventDelta            = "delta"          // body: normalized.Delta
	EventRestarted        = "turn.restarted" // a run ended without an answer and starts again; earlier deltas are void
	EventDeliverySent     = "delivery.sent"  // body: {"destination","detail"}
	EventDeliveryRetry    = "delivery.retry" // body: {"destination","reason","at"}
	EventDeliveryDead     = "delivery.dead"  // body: {"destination","reason"}
	EventDeliveryCanceled = "delivery.cancelled"
	EventAcknowledged     = "acknowledged"    // the asker is told that the turn takes long
	EventMessageEdited    = "message.edited"  // by its sender; body of the first: {"original":[parts]}
	EventMessageDeleted   = "message.deleted" // by its sender
	EventReaction         = "reaction"        // body: Reaction
	EventReactionGone     = "reaction.gone"   // body: Reaction
	EventReplyEdited      = "reply.edited"    // by the operator; body: {"revision","by"}
	EventReplyDeleted     = "reply.deleted"   // by the operator; body: {"by"}
)

// Event is one row of a turn's timeline. Streams read events by Seq, which grows by one inside a turn.
type Event struct {
	TurnID string          `json:"turn_id"`
	Seq    int64           `json:"seq"`
	Kind   string          `json:"kind"`
	Body   json.RawMessage `json:"body,omitempty"`
	At     time.Time       `json:"at"`
}

// ThreadEntry is one stored message, found by its native id or by the native id of its reply.
type ThreadEntry struct {
	TurnID    string
	ThreadID  string
	Reference string
	Message   normalized.Message
	Route     json.RawMessage
}

// Kinds of an Event about what an agent did on its way to an answer. They are for the operator: no adapter shows them, and
// they hold neither texts nor values of arguments. An agent of an embedding program may write the same kinds.
const (
	EventModelCalled = "model.called"  // body: ModelStep
	EventToolCalled  = "tool.called"   // body: ToolStep
	EventRunWaits    = "run.waits"     // body: WaitStep
	EventCompacted   = "run.compacted" // body: CompactionStep
	EventHookDecided = "hook.decided"  // body: HookStep; a hook wanted something else than the run
	EventHookFailed  = "hook.failed"   // body: HookStep

	// EventNotAddressed says whom an answer named in its text and not in to or cc; body: {"addresses","reason","mention_relay"}.
	EventNotAddressed = "mention.not_addressed"
	// EventAnswerCut says what of an answer had no room; body: {"tool_calls","sources","parts","bytes","rest"}, those that are not 0.
	EventAnswerCut = "answer.cut"
)

// ModelStep is one call of a model, with its repetitions.
type ModelStep struct {
	Number     int     `json:"n"` // counts the calls of the turn from 1
	Model      string  `json:"model"`
	Purpose    string  `json:"purpose,omitempty"` // empty = the next step of the conversation; "conclude", "summary"
	Millis     int64   `json:"ms"`
	Input      int64   `json:"prompt_tokens"` // those from and for the cache are among them
	Output     int64   `json:"completion_tokens"`
	CacheRead  int64   `json:"cache_read_tokens,omitempty"`
	CacheWrite int64   `json:"cache_write_tokens,omitempty"`
	Cost       float64 `json:"cost,omitempty"`
	Currency   string  `json:"currency,omitempty"`
	Stop       string  `json:"stop,omitempty"`
	ToolCalls  int     `json:"tool_calls,omitempty"` // that it asked for
	Error      string  `json:"error,omitempty"`
}

// States of a ToolStep.
const (
	ToolSucceeded = "succeeded"
	ToolFailed    = "failed"
	ToolRejected  = "rejected" // it was not called
)

// ToolStep is one call of a tool that ended.
type ToolStep struct {
	Name      string        `json:"tool"`
	CallID    string        `json:"tool_call_id"`
	Status    string        `json:"status"`
	Millis    int64         `json:"ms"`
	Arguments ToolArguments `json:"arguments"`
	Result    *ToolShape    `json:"result,omitempty"` // of a success
	ErrorType string        `json:"error_type,omitempty"`
}

// ToolArguments is what may be known of arguments (agent runtime contract, section 2.2).
type ToolArguments struct {
	Keys     []string `json:"keys"`
	Count    int      `json:"count"`
	Redacted bool     `json:"redacted"` // always true
}

// ToolShape says how large a result was: members of an object, items of an array, bytes of a string.
type ToolShape struct {
	Type  string `json:"type"`
	Count int    `json:"count,omitempty"`
	Size  int    `json:"size,omitempty"`
}

// WaitStep says for what a run was parked.
type WaitStep struct {
	For    string `json:"for"` // approval_required, runtime_tool_pending or dispatch
	Tool   string `json:"tool"`
	CallID string `json:"tool_call_id"`
	Calls  int    `json:"calls,omitempty"` // that wait together
}

// HookStep says what a program of the operator decided about a run, or how it failed.
type HookStep struct {
	Hook        string `json:"hook"`             // tool_call, tool_result, turn or events
	Action      string `json:"action,omitempty"` // what follows: proceed, reject, replace_result, pending, require_approval, complete, continue, retry
	Tool        string `json:"tool,omitempty"`
	CallID      string `json:"tool_call_id,omitempty"`
	Error       string `json:"error,omitempty"`
	Undelivered int    `json:"undelivered,omitempty"` // events that the observer does not have
}

// CompactionStep says how a conversation was shortened.
type CompactionStep struct {
	Status    string `json:"status"` // compacted, archived or failed
	Of        string `json:"of"`     // history or steps
	Messages  int    `json:"messages"`
	Kept      int    `json:"kept"`
	Before    int    `json:"bytes_before"`
	After     int    `json:"bytes_after"`
	ArchiveID string `json:"archive_id,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Spent is what the steps of a turn took together.
type Spent struct {
	ModelCalls int     `json:"model_calls"`
	ToolCalls  int     `json:"tool_calls"`
	Input      int64   `json:"prompt_tokens"`
	Output     int64   `json:"completion_tokens"`
	CacheRead  int64   `json:"cache_read_tokens"`
	CacheWrite int64   `json:"cache_write_tokens"`
	ModelMS    int64   `json:"model_ms"`
	Cost       float64 `json:"cost"`
	Currency   string  `json:"currency,omitempty"`
}

// SpentBy sums the steps among the events; nil when there are none. Costs are rounded to a billionth of their unit.
func SpentBy(events []Event) *Spent {
	var sum Spent
	stepped := false
	for i := range events {
		switch events[i].Kind {
		case EventModelCalled:
			var step ModelStep
			if json.Unmarshal(events[i].Body, &step) == nil {
				stepped = true
				sum.add(&step)
			}
		case EventToolCalled:
			stepped = true
			sum.ToolCalls++
		}
	}

	if !stepped {
		return nil
	}

	sum.Cost = math.Round(sum.Cost*1e9) / 1e9
	return &sum
}

func (s *Spent) add(step *ModelStep) {
	s.ModelCalls++
	s.Input += step.Input
	s.Output += step.Output
	s.CacheRead += step.CacheRead
	s.CacheWrite += step.CacheWrite
	s.ModelMS += step.Millis
	s.Cost += step.Cost

	if step.Currency != "" {
		s.Currency = step.Currency
	}
}

// maxReadableRun is the longest run id, in bytes, that stands in a message's id as it is.
const maxReadableRun = 256

// RunMessageID returns the id of the message that began a run of a chat client, by which its turn is found again. A longer
// run id stands in it as its hash.
func RunMessageID(run string) string {
	if len(run) > maxReadableRun {
		sum := sha256.Sum256([]byte("chat id\x00" + run))
		run = hex.EncodeToString(sum[:])
	}
	return "chat:run:" + run
}

// RunEventType returns the name that a run's events have for the kind of an Event (agent runtime contract, section 6.6).
func RunEventType(kind string) string {
	state, is := strings.CutPrefix(kind, "turn.")
	switch {
	case is && state == StateRunning:
		return "run_started"
	case is && state == StateCancelled:
		return "cancel_requested"
	case is && Terminal(state):
		return "run_finished"
	}
	return "run_updated"
}

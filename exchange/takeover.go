package exchange

import (
	"time"

	"inbox/normalized"
)

// WaitingOperator is the reason of a turn in StateWaiting that a person answers instead of the agent, because an operator has taken its
// conversation over. It goes on when the operator answers it or hands the conversation back.
const WaitingOperator = "operator"

// NoticeDraft is the Notice of what an agent said after an operator had taken its conversation over. It is kept for the operator, goes
// nowhere and is no part of the history.
const NoticeDraft = -2

// Kinds of an Event about an operator who writes as the agent.
const (
	EventTakenOver       = "operator.took_over"   // on the newest turn of the conversation; body: {"by","from"}
	EventHandedBack      = "operator.handed_back" // on the newest turn of the conversation; body: {"by","noted","dropped"}; noted = there is a note, in the Takeover
	EventOperatorAnswers = "operator.answers"     // body: {"by"}; the answer leaves with the run that follows
	EventDraftKept       = "reply.draft"          // body: {"reply"}; see NoticeDraft
)

// Codes of audit records about takeovers.
const (
	AuditTakenOver  = "takeover:began"
	AuditTaken      = "takeover:taken" // by one operator from another one
	AuditHandedBack = "takeover:ended"
	AuditAnswered   = "turn:answered"
)

// Takeover says that an operator writes as the agent in a conversation, or did.
type Takeover struct {
	ID        string    `json:"id"`
	Agent     string    `json:"agent"`
	ThreadID  string    `json:"thread_id"`
	Holder    string    `json:"holder"`
	Since     time.Time `json:"since"`      // for this holder
	TouchedAt time.Time `json:"touched_at"` // when an operator did something in it last
	EndedAt   time.Time `json:"ended_at,omitzero"`
	EndedBy   string    `json:"ended_by,omitempty"`
	Note      string    `json:"note,omitempty"`    // for the agent
	Dropped   bool      `json:"dropped,omitempty"` // what waited at its end got no answer
	ToldTurn  string    `json:"-"`                 // the turn whose agent is told of the end; empty = none yet
	Waiting   int       `json:"waiting"`           // messages that wait for the holder, counted up to 1,000
}

// Open reports whether the operator still has the conversation.
func (t Takeover) Open() bool { return t.EndedAt.IsZero() }

// MaxWaitingOfThread is where the waiting messages of one conversation are counted no further.
const MaxWaitingOfThread = 1000

// TakeoverFilter selects takeovers, newest first. Empty fields do not restrict.
type TakeoverFilter struct {
	Agent  string
	Holder string
	All    bool   // also those that have ended
	Before string // id of the last one of the page before
	Limit  int    // 1…500
}

// WrittenAnswer is what an operator wrote as the answer of a turn.
type WrittenAnswer struct {
	By    string            `json:"by"`
	At    time.Time         `json:"at"`
	Parts []normalized.Part `json:"parts,omitempty"` // empty once they are the turn's reply
}

// AnsweredBy is the operator who wrote the answer of a turn; empty = the agent did, or there is none.
func AnsweredBy(turn TurnRecord) string {
	if turn.Written == nil || turn.Response == nil {
		return ""
	}
	return turn.Written.By
}

// SaidAnswer names an answer that a turn had before an operator wrote a further one.
type SaidAnswer struct {
	ReplyID string `json:"reply"`
	By      string `json:"by,omitempty"` // the operator who wrote it; empty = the agent
}

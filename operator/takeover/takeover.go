// Package takeover lets operators write as an agent: they take a conversation over from it, answer, and hand it back.
package takeover

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator/lookup"
)

// Service takes conversations over, answers in them and hands them back. By is always the operator, for the others and for the record.
type Service struct {
	store     *store.Store
	decisions Decisions
	index     *lookup.Index
}

// New makes the service of a database.
func New(rows *store.Store, decisions Decisions, index *lookup.Index) *Service {
	return &Service{rows, decisions, index}
}

// Decisions change who writes in a conversation, and keep what operators write; *pipeline.Service does.
type Decisions interface {
	TakeOver(ctx context.Context, agent, threadID, by string, force bool) (exchange.Takeover, error)
	HandBack(ctx context.Context, agent, threadID, by string, how pipeline.HandBack) (exchange.Takeover, error)
	WriteAnswer(ctx context.Context, answer pipeline.OperatorAnswer) (turnID string, err error)
}

// MaxOperatorName bounds the name of an operator, in bytes.
const MaxOperatorName = 128

// HandBack says how a conversation is handed back.
type HandBack = pipeline.HandBack

// List lists takeovers, newest first.
func (s *Service) List(ctx context.Context, filter exchange.TakeoverFilter) ([]exchange.Takeover, error) {
	return s.store.Takeovers(ctx, filter)
}

// Of returns who has a conversation; fault.NotFound when no operator has.
func (s *Service) Of(ctx context.Context, id lookup.ConversationID) (exchange.Takeover, error) {
	turn, _, err := s.index.Conversation(ctx, id)
	if err != nil {
		return exchange.Takeover{}, err
	}
	open, found, err := s.open(ctx, turn)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "no operator has this conversation")
	}
	return open, err
}

func (s *Service) open(ctx context.Context, turn exchange.TurnRecord) (exchange.Takeover, bool, error) {
	newest, found, err := s.store.Takeover(ctx, turn.Agent, turn.ThreadID)
	if err != nil || !found || !newest.Open() {
		return newest, false, err
	}
	waiting, err := s.store.WaitingForOperator(ctx, turn.Agent, turn.ThreadID, exchange.MaxWaitingOfThread)
	newest.Waiting = len(waiting)
	return newest, true, err
}

// Take gives a conversation to the operator; with force it is taken from another one. fault.NotFound without such a conversation,
// fault.Conflict when another operator has it.
func (s *Service) Take(ctx context.Context, id lookup.ConversationID, by string, force bool) (exchange.Takeover, error) {
	turn, by, err := s.act(ctx, id, by)
	if err != nil {
		return exchange.Takeover{}, err
	}
	return s.decisions.TakeOver(ctx, turn.Agent, turn.ThreadID, by, force)
}

// End hands a conversation back to its agent. fault.NotFound when no operator has it, fault.Conflict when another one has it.
func (s *Service) End(ctx context.Context, id lookup.ConversationID, by string, how HandBack) (exchange.Takeover, error) {
	turn, by, err := s.act(ctx, id, by)
	if err != nil {
		return exchange.Takeover{}, err
	}
	return s.decisions.HandBack(ctx, turn.Agent, turn.ThreadID, by, how)
}

// WrittenReply is what an operator writes as an agent.
type WrittenReply struct {
	Text string
	MIME string // text/plain, which is that of an empty one, or text/markdown
	Key  string // a repeat with the same key is the same answer; empty = every call is another one
}

// Addressee is who gets an answer, and the message that it answers.
type Addressee struct {
	TurnID  string `json:"turn_id"`
	Agent   string `json:"agent"`
	To      string `json:"to"`      // address of the sender of the message
	Proven  bool   `json:"proven"`  // it is proven that the message is of the address
	Channel string `json:"channel"` // by which the answer leaves
	About   string `json:"about"`   // the beginning of the message
	// Also are the other people in To and Cc of the message, as the sender wrote them: the answer may go to them, too.
	Also []string `json:"also,omitempty"`
}

// Addressee says whom an answer to a message or conversation goes to: the message of the id, or where the id is one of a conversation the
// newest that waits for the operator, else the newest. fault.Conflict lists the messages when several have the id, or when messages of
// several people wait in the conversation.
func (s *Service) Addressee(ctx context.Context, id lookup.ConversationID) (Addressee, error) {
	turn, one, err := s.index.Conversation(ctx, id)
	if err != nil {
		return Addressee{}, err
	}
	if !one {
		waiting, err := s.store.WaitingForOperator(ctx, turn.Agent, turn.ThreadID, exchange.MaxWaitingOfThread)
		if err != nil {
			return Addressee{}, err
		}
		if len(waiting) > 0 {
			if turn, err = s.newestOfOne(ctx, id.ID, waiting); err != nil {
				return Addressee{}, err
			}
			return addresseeOf(turn), nil
		}

		newest, err := s.store.Turns(ctx, exchange.TurnFilter{Agent: turn.Agent, ThreadID: turn.ThreadID, Limit: 1, ByArrival: true})
		if err == nil && len(newest) > 0 {
			turn, err = s.store.Turn(ctx, newest[0].ID)
		}
		if err != nil {
			return Addressee{}, err
		}
	}
	return addresseeOf(turn), nil
}

// newestOfOne returns the newest of the messages that wait in a conversation. A person who was in Cc once may have written last, so the
// messages must be of one person.
func (s *Service) newestOfOne(ctx context.Context, id string, waiting []string) (newest exchange.TurnRecord, err error) {
	turns := make([]exchange.TurnRecord, len(waiting))
	for i, turnID := range waiting {
		if turns[i], err = s.store.Turn(ctx, turnID); err != nil {
			return newest, err
		}
	}
	return turns[len(turns)-1], lookup.Unambiguous(id, turns, func(a, b exchange.TurnRecord) bool { return a.Principal == b.Principal })
}

func addresseeOf(turn exchange.TurnRecord) Addressee {
	return Addressee{
		TurnID: turn.ID, Agent: turn.Agent, To: turn.Message.Sender.Address.String(), Proven: turn.Message.Sender.Speaker() != nil, Channel: turn.Channel,
		About: lookup.Excerpt(turn.Message),
		Also:  alsoAddressed(turn.Message),
	}
}

func alsoAddressed(message normalized.Message) (others []string) {
	if message.Surface == nil {
		return nil
	}
	known := []string{message.Sender.Address.String(), message.Recipient}
	for _, one := range slices.Concat(message.Surface.To, message.Surface.Cc) {
		if !slices.ContainsFunc(known, func(address string) bool { return identity.SameAddress(address, one.Address) }) {
			others, known = append(others, one.Address), append(known, one.Address)
		}
	}
	return others
}

// Reply answers as the agent and returns who gets the answer, see Addressee. A running server sends it. fault.Conflict when the message can
// have no answer any more, or another operator has its conversation.
func (s *Service) Reply(ctx context.Context, id lookup.ConversationID, by string, reply WrittenReply) (Addressee, error) {
	if strings.TrimSpace(reply.Text) == "" {
		return Addressee{}, fault.InField("text", "is empty")
	}
	by, err := operatorName(by)
	if err != nil {
		return Addressee{}, err
	}
	to, err := s.Addressee(ctx, id)
	if err != nil {
		return Addressee{}, err
	}

	answered, err := s.decisions.WriteAnswer(ctx, pipeline.OperatorAnswer{TurnID: to.TurnID, By: by, Key: reply.Key, Text: reply.Text, MIME: reply.MIME})
	if err != nil || answered == to.TurnID {
		return to, err
	}
	turn, err := s.store.Turn(ctx, answered) // the key was used before, for another message of the conversation
	return addresseeOf(turn), err
}

func (s *Service) act(ctx context.Context, id lookup.ConversationID, by string) (exchange.TurnRecord, string, error) {
	turn, _, err := s.index.Conversation(ctx, id)
	if err != nil {
		return turn, by, err
	}
	by, err = operatorName(by)
	return turn, by, err
}

func operatorName(by string) (string, error) {
	by = strings.TrimSpace(by)
	if by == "" || len(by) > MaxOperatorName || strings.ContainsFunc(by, func(char rune) bool { return !unicode.IsPrint(char) }) {
		return by, fault.InField("by", "must be a name of 1 to 128 bytes")
	}
	return by, nil
}

package operator

import (
	"context"
	"strings"
	"unicode"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Takeovers are conversations in which an operator writes as the agent, and what operators write. The id of a conversation is that of the
// conversation itself, or any by which one of its messages is shown (Kinds). By is the operator, for the others and for the record.
type Takeovers struct {
	store  *store.Store
	turns  TakeoverDecisions
	finder Finder
}

// TakeoverDecisions decide about them; *pipeline.Service does.
type TakeoverDecisions interface {
	TakeOver(ctx context.Context, agent, threadID, by string, force bool) (exchange.Takeover, error)
	HandBack(ctx context.Context, agent, threadID, by string, how pipeline.HandBack) (exchange.Takeover, error)
	WriteAnswer(ctx context.Context, answer pipeline.OperatorAnswer) (turnID string, err error)
}

// MaxOperatorName bounds the name of an operator, in bytes.
const MaxOperatorName = 128

// ConversationID names a conversation.
type ConversationID struct {
	ID    string
	Agent string // needed where several agents have a conversation with the id
	Whole bool   // the ID is not that of a message, even where the first message of a conversation by mail gave it its name
}

// HandBack says how a conversation is handed back.
type HandBack = pipeline.HandBack

// List lists takeovers, newest first.
func (t Takeovers) List(ctx context.Context, filter exchange.TakeoverFilter) ([]exchange.Takeover, error) {
	found, err := t.store.Takeovers(ctx, filter)
	return listed(found), err
}

// Of returns who has a conversation; fault.NotFound when no operator has.
func (t Takeovers) Of(ctx context.Context, id ConversationID) (exchange.Takeover, error) {
	turn, _, err := t.find(ctx, id)
	if err != nil {
		return exchange.Takeover{}, err
	}
	open, found, err := t.open(ctx, turn)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "no operator has this conversation")
	}
	return open, err
}

func (t Takeovers) open(ctx context.Context, turn exchange.TurnRecord) (exchange.Takeover, bool, error) {
	newest, found, err := t.store.Takeover(ctx, turn.Agent, turn.ThreadID)
	if err != nil || !found || !newest.Open() {
		return newest, false, err
	}
	waiting, err := t.store.WaitingForOperator(ctx, turn.Agent, turn.ThreadID, exchange.MaxWaitingOfThread)
	newest.Waiting = len(waiting)
	return newest, true, err
}

// Take gives a conversation to the operator; with force it is taken from another one. fault.NotFound without such a conversation,
// fault.Conflict when another operator has it.
func (t Takeovers) Take(ctx context.Context, id ConversationID, by string, force bool) (exchange.Takeover, error) {
	turn, by, err := t.act(ctx, id, by)
	if err != nil {
		return exchange.Takeover{}, err
	}
	return t.turns.TakeOver(ctx, turn.Agent, turn.ThreadID, by, force)
}

// End hands a conversation back to its agent. fault.NotFound when no operator has it, fault.Conflict when another one has it.
func (t Takeovers) End(ctx context.Context, id ConversationID, by string, how HandBack) (exchange.Takeover, error) {
	turn, by, err := t.act(ctx, id, by)
	if err != nil {
		return exchange.Takeover{}, err
	}
	return t.turns.HandBack(ctx, turn.Agent, turn.ThreadID, by, how)
}

// WrittenReply is what an operator writes as an agent.
type WrittenReply struct {
	Text string
	MIME string // text/plain, which is that of an empty one, or text/markdown
	Key  string // a repeat with the same key is the same answer; empty = every call is another one
}

// Reply answers as the agent and returns the id of the message that is answered: that of the id, or where the id is one of a conversation
// the newest that waits for the operator, else the newest. A running server sends the answer. fault.Conflict when the message can have no
// answer any more, or another operator has its conversation.
func (t Takeovers) Reply(ctx context.Context, id ConversationID, by string, reply WrittenReply) (turnID string, err error) {
	if strings.TrimSpace(reply.Text) == "" {
		return "", fault.InField("text", "is empty")
	}
	answer := pipeline.OperatorAnswer{Key: reply.Key, Text: reply.Text, MIME: reply.MIME}
	turn, one, err := t.find(ctx, id)
	if err != nil {
		return "", err
	}
	if answer.By, err = operatorName(by); err != nil {
		return "", err
	}
	if answer.Agent, answer.ThreadID = turn.Agent, turn.ThreadID; one && !id.Whole {
		answer.TurnID = turn.ID
	}
	return t.turns.WriteAnswer(ctx, answer)
}

func (t Takeovers) act(ctx context.Context, id ConversationID, by string) (exchange.TurnRecord, string, error) {
	turn, _, err := t.find(ctx, id)
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

// MarkRead keeps that an operator has read a conversation, up to its newest message. fault.NotFound when there is none, fault.Conflict
// when the id is one of several.
func (t Takeovers) MarkRead(ctx context.Context, owner exchange.SessionOwner, id ConversationID) error {
	turn, _, err := t.find(ctx, id)
	if err != nil {
		return err
	}
	newest, err := Arrivals{t.store}.Thread(ctx, turn.Agent, turn.ThreadID, "", 1)
	if err != nil || len(newest) == 0 {
		return err
	}
	return t.store.MarkRead(ctx, owner, newest[0])
}

// idsOfConversations are the kinds of ids that several messages share.
var idsOfConversations = map[string]bool{"thread": true, "session": true, "A2A task": true}

// find returns the newest message that an id leads to, and whether the id names that message alone.
func (t Takeovers) find(ctx context.Context, id ConversationID) (turn exchange.TurnRecord, one bool, err error) {
	kind, turns, err := t.finder.Find(ctx, id.ID)
	if err != nil {
		return turn, false, err
	}

	var found []exchange.TurnRecord
	for _, candidate := range turns {
		other, err := t.store.Turn(ctx, candidate)
		if err != nil {
			return turn, false, err
		}
		if id.Agent == "" || strings.EqualFold(id.Agent, other.Agent) {
			found = append(found, other)
		}
	}
	if len(found) == 0 {
		return turn, false, fault.Newf(fault.NotFound, "%s has no message or conversation %s", id.Agent, id.ID)
	}
	for _, other := range found[1:] {
		if other.Agent != found[0].Agent || other.ThreadID != found[0].ThreadID {
			return turn, false, fault.New(fault.Conflict, "several conversations have the id; give that of a message, or name the agent")
		}
	}

	if idsOfConversations[kind] || len(found) == 1 {
		return found[0], !idsOfConversations[kind], nil
	}
	for _, other := range found { // the first message of a conversation by mail may give it its name
		if native := strings.Trim(id.ID, "<> "); other.ID == native || other.Message.ID == native || other.ReplyID == native {
			return other, true, nil
		}
	}
	return found[0], false, nil
}

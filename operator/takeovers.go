package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Takeovers are conversations in which an operator writes as the agent, and what operators write. The id of a conversation is that of the
// conversation itself, or any by which one of its messages is shown (Kinds). By is the operator, for the others and for the record.
type Takeovers struct {
	store  *store.Store
	turns  TakeoverDecisions
	finder Finder

	current func() *config.Config // says whose history follows the person
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

// maxAbout bounds Addressee.About, in bytes.
const maxAbout = 120

// Addressee says whom an answer to a message or conversation goes to: the message of the id, or where the id is one of a conversation the
// newest that waits for the operator, else the newest. fault.Conflict lists the messages when several have the id, or when messages of
// several people wait in the conversation.
func (t Takeovers) Addressee(ctx context.Context, id ConversationID) (Addressee, error) {
	turn, one, err := t.find(ctx, id)
	if err != nil {
		return Addressee{}, err
	}
	if !one {
		waiting, err := t.store.WaitingForOperator(ctx, turn.Agent, turn.ThreadID, exchange.MaxWaitingOfThread)
		if err != nil {
			return Addressee{}, err
		}
		if len(waiting) > 0 {
			if turn, err = t.newestOfOne(ctx, id.ID, waiting); err != nil {
				return Addressee{}, err
			}
			return addresseeOf(turn), nil
		}

		newest, err := Arrivals{t.store}.Thread(ctx, turn.Agent, turn.ThreadID, "", 1)
		if err == nil && len(newest) > 0 {
			turn, err = t.store.Turn(ctx, newest[0].ID)
		}
		if err != nil {
			return Addressee{}, err
		}
	}
	return addresseeOf(turn), nil
}

// newestOfOne returns the newest of the messages that wait in a conversation. A person who was in Cc once may have written last, so the
// messages must be of one person.
func (t Takeovers) newestOfOne(ctx context.Context, id string, waiting []string) (newest exchange.TurnRecord, err error) {
	turns := make([]exchange.TurnRecord, len(waiting))
	for i, turnID := range waiting {
		if turns[i], err = t.store.Turn(ctx, turnID); err != nil {
			return newest, err
		}
	}
	return turns[len(turns)-1], ambiguous(id, turns, func(a, b exchange.TurnRecord) bool { return a.Principal == b.Principal })
}

func addresseeOf(turn exchange.TurnRecord) Addressee {
	return Addressee{
		TurnID: turn.ID, Agent: turn.Agent, To: turn.Message.Sender.Address.String(), Proven: turn.Message.Sender.Speaker() != nil, Channel: turn.Channel,
		About: clip.Bytes(strings.Join(strings.Fields(markup.PlainText(turn.Message.Parts)), " "), maxAbout),
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
func (t Takeovers) Reply(ctx context.Context, id ConversationID, by string, reply WrittenReply) (Addressee, error) {
	if strings.TrimSpace(reply.Text) == "" {
		return Addressee{}, fault.InField("text", "is empty")
	}
	by, err := operatorName(by)
	if err != nil {
		return Addressee{}, err
	}
	to, err := t.Addressee(ctx, id)
	if err != nil {
		return Addressee{}, err
	}

	answered, err := t.turns.WriteAnswer(ctx, pipeline.OperatorAnswer{TurnID: to.TurnID, By: by, Key: reply.Key, Text: reply.Text, MIME: reply.MIME})
	if err != nil || answered == to.TurnID {
		return to, err
	}
	turn, err := t.store.Turn(ctx, answered) // the key was used before, for another message of the conversation
	return addresseeOf(turn), err
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

	if id.Whole {
		kind, found = kindThread, ofConversation(id.ID, found)
	}
	found, one, err = oneOf(kind, id.ID, found)
	if err != nil {
		return turn, false, err
	}
	return found[0], one, nil
}

// ofConversation leaves the messages of the conversation with the id, if there is one: a sender may call a message by the id of another person's.
func ofConversation(id string, found []exchange.TurnRecord) []exchange.TurnRecord {
	own := slices.DeleteFunc(slices.Clone(found), func(turn exchange.TurnRecord) bool { return turn.ThreadID != id })
	if len(own) == 0 {
		return found
	}
	return own
}

// oneOf returns the messages to which an id leads, that which it means first, and whether it names that message alone. An id of a conversation means
// its newest message. fault.Conflict lists the messages where the id fits several, or several conversations.
func oneOf(kind, id string, found []exchange.TurnRecord) (ordered []exchange.TurnRecord, one bool, err error) {
	if err := ambiguous(id, found, func(a, b exchange.TurnRecord) bool { return a.Agent == b.Agent && a.ThreadID == b.ThreadID }); err != nil {
		return nil, false, err
	}
	if idsOfConversations[kind] {
		return found, false, nil
	}

	native := strings.Trim(id, "<> ")
	var named, others []exchange.TurnRecord // the id is their own, or that of their answer
	for _, turn := range found {
		if turn.ID == native || turn.Message.ID == native || turn.ReplyID == native {
			named = append(named, turn)
		} else {
			others = append(others, turn)
		}
	}
	if len(named) == 0 {
		named, others = found, nil
	}
	return append(named, others...), true, ambiguous(id, named, func(a, b exchange.TurnRecord) bool { return a.ID == b.ID })
}

// ambiguous refuses an id that fits several messages or conversations, and lists them: senders choose the ids of their messages, and another
// person may have chosen the same.
func ambiguous(id string, found []exchange.TurnRecord, same func(a, b exchange.TurnRecord) bool) error {
	if !slices.ContainsFunc(found, func(turn exchange.TurnRecord) bool { return !same(found[0], turn) }) {
		return nil
	}

	lines := make([]string, 0, len(found))
	for _, turn := range found {
		to := addresseeOf(turn)
		proof := ""
		if !to.Proven {
			proof = " (unproven)"
		}
		lines = append(lines, fmt.Sprintf("%s from %s%s to %s by %s: %s", turn.ID, to.To, proof, turn.Agent, to.Channel, to.About))
	}
	return fault.Newf(fault.Conflict, "several messages fit %s; give the id of the one that you mean:\n%s", id, strings.Join(lines, "\n"))
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
var idsOfConversations = map[string]bool{kindThread: true, "session": true, "A2A task": true}

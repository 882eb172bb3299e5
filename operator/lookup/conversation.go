package lookup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
)

// ConversationID names a conversation: by its own id, or by any id of one of its messages (Kinds).
type ConversationID struct {
	ID    string
	Agent string // needed where several agents have a conversation with the id
	Whole bool   // the ID is not that of a message, even where the first message of a conversation by mail gave it its name
}

// Conversation returns the newest message to which the id of a conversation leads, and whether the id names that message alone. fault.NotFound for none,
// fault.Conflict with a list where the id fits several.
func (x *Index) Conversation(ctx context.Context, id ConversationID) (turn exchange.TurnRecord, one bool, err error) {
	kind, turns, err := x.Find(ctx, id.ID)
	if err != nil {
		return turn, false, err
	}

	var found []exchange.TurnRecord
	for _, candidate := range turns {
		other, err := x.rows.Turn(ctx, candidate)
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
	found, one, err = Order(kind, id.ID, found)
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

// Order puts the message that an id means before the others to which it leads, and says whether the id names that message alone. An id of a conversation
// means its newest message. fault.Conflict lists the messages where the id fits several, or several conversations.
func Order(kind, id string, found []exchange.TurnRecord) (ordered []exchange.TurnRecord, one bool, err error) {
	if err := Unambiguous(id, found, func(a, b exchange.TurnRecord) bool { return a.Agent == b.Agent && a.ThreadID == b.ThreadID }); err != nil {
		return nil, false, err
	}
	if ofConversations[kind] {
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
	return append(named, others...), true, Unambiguous(id, named, func(a, b exchange.TurnRecord) bool { return a.ID == b.ID })
}

// Unambiguous refuses an id that fits messages which are not the same, and lists them: senders choose the ids of their messages, and another
// person may have chosen the same.
func Unambiguous(id string, found []exchange.TurnRecord, same func(a, b exchange.TurnRecord) bool) error {
	if !slices.ContainsFunc(found, func(turn exchange.TurnRecord) bool { return !same(found[0], turn) }) {
		return nil
	}

	lines := make([]string, 0, len(found))
	for _, turn := range found {
		proof := ""
		if turn.Message.Sender.Speaker() == nil {
			proof = " (unproven)"
		}
		lines = append(lines, fmt.Sprintf("%s from %s%s to %s by %s: %s", turn.ID, turn.Message.Sender.Address, proof, turn.Agent, turn.Channel, Excerpt(turn.Message)))
	}
	return fault.Newf(fault.Conflict, "several messages fit %s; give the id of the one that you mean:\n%s", id, strings.Join(lines, "\n"))
}

// maxExcerpt bounds an Excerpt, in bytes.
const maxExcerpt = 120

// Excerpt is the beginning of a message on one line.
func Excerpt(message normalized.Message) string {
	return clip.Bytes(strings.Join(strings.Fields(markup.PlainText(message.Parts)), " "), maxExcerpt)
}

// ofConversations are the kinds of ids that several messages share.
var ofConversations = map[string]bool{kindThread: true, "session": true, "A2A task": true}

// OfActs are the kinds of ids of what the server did once, which may be about several messages.
var OfActs = map[string]bool{"job": true, "request": true, "audit record": true}

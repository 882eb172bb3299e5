package operator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/operator/lookup"
)

// Arrivals are what came in: messages in the order in which they came, and the conversations that they are in.
type Arrivals struct {
	store *store.Store
	index *lookup.Index

	current func() *config.Config // says whose history follows the person
}

// Page lists messages, newest first. A page may have fewer than its limit although more follow; Next alone says so.
func (a Arrivals) Page(ctx context.Context, filter exchange.ArrivalFilter) (exchange.ArrivalPage, error) {
	return a.store.Arrivals(ctx, filter)
}

// List is Page until its limit is reached or nothing more follows, however long that takes.
func (a Arrivals) List(ctx context.Context, filter exchange.ArrivalFilter) (exchange.ArrivalPage, error) {
	all := exchange.ArrivalPage{Turns: []exchange.TurnRecord{}}
	for limit := filter.Limit; ; {
		page, err := a.store.Arrivals(ctx, filter)
		if err != nil {
			return all, err
		}

		all.Turns, all.Next = append(all.Turns, page.Turns...), page.Next
		if page.Next == "" || len(all.Turns) >= limit {
			return all, nil
		}
		filter.Before, filter.Limit = page.Next, limit-len(all.Turns)
	}
}

// Newest returns the cursor behind the newest message, for After. Messages of the last moments may still come behind it: who has
// listed before leaves out what was in the list.
func (a Arrivals) Newest(ctx context.Context) (string, error) {
	number, err := a.store.LastArrival(ctx)
	return strconv.FormatInt(number, 10), err
}

const (
	// maxAfter is how many messages After returns.
	maxAfter = 500
	// lookAgain is how soon After looks again while it waits.
	lookAgain = 250 * time.Millisecond
)

// After returns messages that came after the cursor, oldest first, and the cursor to go on with: who goes on gets each message
// once. It waits as long for the first one, until ctx ends or stop is closed. A message is there some hundred milliseconds after it
// was accepted; a filter with a text holds against what it says by then. fault.Malformed for a wrong cursor or filter.
func (a Arrivals) After(ctx context.Context, filter exchange.ArrivalFilter, after string, wait time.Duration, stop <-chan struct{}) ([]exchange.TurnRecord, string, error) {
	number, err := strconv.ParseInt(after, 10, 64)
	if err != nil || number < 0 {
		return nil, after, fault.InField("after", "is not a cursor that this server gave")
	}
	limit := filter.Limit
	if limit < 1 || limit > maxAfter {
		limit = maxAfter
	}

	over := time.NewTimer(wait)
	defer over.Stop()
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()

	for {
		before := number
		var turns []exchange.TurnRecord
		if turns, number, err = a.store.ArrivalsAfter(ctx, filter, number, limit); err != nil {
			return nil, after, err
		}
		after = strconv.FormatInt(number, 10)
		if len(turns) > 0 {
			return turns, after, nil
		}
		if number != before && ctx.Err() == nil {
			continue // others came: perhaps there are more
		}

		select {
		case <-ticker.C:
		case <-over.C:
			return listed(turns), after, nil
		case <-stop:
			return listed(turns), after, nil
		case <-ctx.Done():
			return listed(turns), after, ctx.Err()
		}
	}
}

// Conversation is a thread of messages to one agent, by its newest message.
type Conversation struct {
	Agent    string    `json:"agent"`
	ThreadID string    `json:"thread_id"`
	Channel  string    `json:"channel"`
	Sender   string    `json:"sender"` // of the newest message
	State    string    `json:"state"`  // of the newest message
	Messages int       `json:"messages"`
	More     bool      `json:"more,omitempty"` // there are more messages than are counted
	TurnID   string    `json:"turn_id"`        // the newest message
	At       time.Time `json:"at"`             // when it was accepted
	Excerpt  string    `json:"excerpt,omitempty"`
	Holder   string    `json:"holder,omitempty"` // the operator who writes as the agent; empty = none does
	Unread   bool      `json:"unread,omitempty"` // the operator for whom it is listed did not read the newest message

	Surface *normalized.Surface `json:"-"` // of the newest message
}

// maxExcerpt is how many bytes of a message a conversation shows.
const maxExcerpt = 200

// Conversations lists threads, the one with the newest message first. The filter is about that message; its text is not looked at.
// A page may have fewer than its limit although more follow: the returned cursor says so. Empty = this was the last one.
// For the zero reader everything is read; a reader is the same for all browsers and programs of an operator.
func (a Arrivals) Conversations(ctx context.Context, filter exchange.ArrivalFilter, reader exchange.SessionOwner) (found []Conversation, next string, err error) {
	heads, next, err := a.store.Conversations(ctx, filter, reader)
	if err != nil {
		return nil, "", err
	}
	found, err = a.conversationsOf(ctx, filter.Agent, heads)
	return found, next, err
}

// Unread is Conversations of those that the reader did not read, among the newest 1,000 messages: at most 100 of them, without further pages.
// The count is that of CountUnread, whatever the filter.
func (a Arrivals) Unread(ctx context.Context, filter exchange.ArrivalFilter, reader exchange.SessionOwner) (found []Conversation, count exchange.UnreadCount, err error) {
	heads, count, err := a.store.UnreadConversations(ctx, filter, reader)
	if err != nil {
		return nil, count, err
	}
	found, err = a.conversationsOf(ctx, filter.Agent, heads)
	return found, count, err
}

func (a Arrivals) conversationsOf(ctx context.Context, agent string, heads []store.ConversationHead) ([]Conversation, error) {
	holders, err := a.store.Holders(ctx, agent)
	if err != nil {
		return nil, err
	}
	found := make([]Conversation, 0, len(heads))
	for i := range heads {
		one := conversationOf(&heads[i])
		one.Holder = holders[store.Thread{Agent: one.Agent, ID: one.ThreadID}]
		found = append(found, one)
	}
	return found, nil
}

// CountUnread returns how many conversations an operator did not read, at most 99. It looks at the newest 1,000 messages.
func (a Arrivals) CountUnread(ctx context.Context, owner exchange.SessionOwner) (exchange.UnreadCount, error) {
	return a.store.CountUnread(ctx, owner)
}

// MarkRead keeps that an operator has read a conversation up to a message.
func (a Arrivals) MarkRead(ctx context.Context, owner exchange.SessionOwner, turn exchange.TurnRecord) error {
	return a.store.MarkRead(ctx, owner, turn)
}

// MarkConversationRead keeps that an operator has read a conversation up to its newest message. fault.NotFound when there is none, fault.Conflict
// when the id is one of several.
func (a Arrivals) MarkConversationRead(ctx context.Context, owner exchange.SessionOwner, id lookup.ConversationID) error {
	turn, _, err := a.index.Conversation(ctx, id)
	if err != nil {
		return err
	}
	newest, err := a.Thread(ctx, turn.Agent, turn.ThreadID, "", 1)
	if err != nil || len(newest) == 0 {
		return err
	}
	return a.store.MarkRead(ctx, owner, newest[0])
}

// MarkAllRead keeps that an operator has read all conversations up to a message; an empty id is that of the newest one.
func (a Arrivals) MarkAllRead(ctx context.Context, owner exchange.SessionOwner, until string) error {
	return a.store.MarkAllRead(ctx, owner, until)
}

// NewestMessage returns the id of the newest message, for MarkAllRead; empty = there is none.
func (a Arrivals) NewestMessage(ctx context.Context) (string, error) { return a.store.NewestTurn(ctx) }

func conversationOf(head *store.ConversationHead) Conversation {
	turn := &head.Turn
	text := markup.PlainText(turn.Message.Parts)
	if len(text) > maxExcerpt {
		text = strings.ToValidUTF8(text[:maxExcerpt], "")
	}
	return Conversation{
		Agent: turn.Agent, ThreadID: turn.ThreadID, Channel: turn.Channel, Sender: turn.Message.Sender.Address.String(), State: turn.State,
		Messages: min(head.Messages, store.MaxCountedOfThread), More: head.Messages > store.MaxCountedOfThread,
		TurnID: turn.ID, At: turn.AcceptedAt, Excerpt: text, Unread: head.Unread,
		Surface: turn.Message.Surface,
	}
}

package store

import (
	"context"
	"sync/atomic"
	"time"

	"inbox/exchange"
)

// Conversations that began before their ids were made of names keep their ids. They are looked for only while there are any.

// earlier is the condition of the index turns_earlier, word by word.
const earlier = `(channel = 'a2a' OR channel = 'chat') AND (substr(thread_id, 1, 2) <> 'c-' OR substr(thread_id, length(thread_id) - 16, 1) = '.')`

const (
	selectAnyEarlier = `SELECT 1 FROM turns WHERE ` + earlier + ` LIMIT 1`

	// The name, or, of a context that was made up here, the id of the thread itself.
	selectEarlier = `SELECT thread_id FROM (
		SELECT id, thread_id FROM (SELECT id, thread_id FROM turns WHERE person_key = $1 AND conversation = $2 AND conversation <> '' AND channel = $3 AND carrier = $4
			AND ` + earlier + ` ORDER BY id DESC LIMIT 1) AS named
		UNION ALL
		SELECT id, thread_id FROM (SELECT id, thread_id FROM turns WHERE thread_key = $5 AND person_key = $1 AND conversation = '' AND channel = $3 AND carrier = $4
			ORDER BY id DESC LIMIT 1) AS made_up
	) AS hit ORDER BY id DESC LIMIT 1`

	selectAnyEarlierCall = `SELECT 1 FROM dispatches WHERE earlier_thread <> '' LIMIT 1`
	selectEarlierCall    = `SELECT 1 FROM dispatches WHERE earlier_thread = $1 AND earlier_thread <> '' LIMIT 1`
)

// existence remembers for a while whether there is a row. A node of an earlier version may write one while nodes are replaced.
type existence struct{ known atomic.Pointer[known] }

type known struct {
	exists bool
	until  time.Time
}

const existenceLife = time.Minute

func (e *existence) check(ctx context.Context, from querier, query string) (bool, error) {
	if last := e.known.Load(); last != nil && time.Now().Before(last.until) {
		return last.exists, nil
	}

	var one int64
	exists, err := first(ctx, from, query, nil, &one)
	if err == nil {
		e.known.Store(&known{exists, time.Now().Add(existenceLife)})
	}
	return exists, err
}

// Conversation implements exchange.Conversations.
func (s turnStore) Conversation(ctx context.Context, name exchange.ConversationName) (string, error) {
	if !storable(name.Name) || !storable(name.Owner) {
		return name.ID(), nil // the message will be refused
	}
	if exist, err := s.earlierTurns.check(ctx, s.engine.Reader(), selectAnyEarlier); err != nil || !exist {
		return name.ID(), err
	}

	var thread string
	found, err := first(ctx, s.engine.Reader(), selectEarlier, []any{
		hashKey(name.Agent, name.Owner), conversationName(name.Name, ""), name.Channel, name.Carrier, hashKey(name.Agent, name.Name),
	}, &thread)
	if err != nil || found {
		return thread, err
	}
	return name.ID(), nil
}

// CallsIn implements pipeline.DispatchReader.
func (s callStore) CallsIn(ctx context.Context, threadID string) (bool, error) {
	if exist, err := s.earlierCalls.check(ctx, s.engine.Reader(), selectAnyEarlierCall); err != nil || !exist {
		return false, err
	}

	var one int64
	return first(ctx, s.engine.Reader(), selectEarlierCall, []any{threadID}, &one)
}

// earlierThread is what a row keeps of the conversation of a call: nothing where it is made of names.
func earlierThread(threadID string) string {
	if exchange.IsConversationID(threadID) {
		return ""
	}
	return threadID
}

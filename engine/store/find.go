package store

import (
	"context"
	"strings"

	"inbox/exchange"
	"inbox/normalized"
)

// maxConversation is the longest name of a conversation, in bytes, that stands in its index as it is.
const maxConversation = 200

// conversationName is how the name of a conversation is kept for look-ups: not at all where the thread has the same name, and a
// long one as its digest.
func conversationName(name, threadID string) string {
	switch {
	case name == threadID, !storable(name):
		return ""
	case len(name) > maxConversation:
		return "sha256-" + normalized.Digest([]byte(name))
	}
	return name
}

// lookup is how turns are found by one kind of id: a statement that reads one range of one index, newest turn first, and its
// arguments but for the limit.
type lookup struct {
	query     string
	arguments func(id string) []any
}

func plain(id string) []any  { return []any{id} }
func hashed(id string) []any { return []any{hashKey(id)} }
func native(id string) []any { return []any{hashKey(id), id} }
func called(id string) []any { return []any{conversationName(id, "")} }
func ofTask(id string) []any { return []any{taskKey(id)} }
func folded(id string) []any { return []any{strings.ToLower(id)} }

// lookups are the kinds of ids by which FindTurns looks. TestFindPlans holds each to its index.
var lookups = map[string]lookup{
	exchange.FindTurn:         {`SELECT id FROM turns WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindReply:        {`SELECT turn_id FROM replies WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindDelivery:     {`SELECT turn_id FROM deliveries WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindDemand:       {`SELECT turn_id FROM demands WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindDemandState:  {`SELECT turn_id FROM demands WHERE state_hash = $1 LIMIT $2 + 0`, plain},
	exchange.FindDispatch:     {`SELECT turn_id FROM dispatches WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindToolRequest:  {`SELECT run_id FROM tool_requests WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindTaskRun:      {`SELECT turn_id FROM task_runs WHERE id = $1 LIMIT $2 + 0`, ofTask},
	exchange.FindAudit:        {`SELECT turn_id FROM audit WHERE id = $1 LIMIT $2 + 0`, plain},
	exchange.FindMessage:      {`SELECT id FROM turns WHERE native_key = $1 AND native_id = $2 ORDER BY id DESC LIMIT $3 + 0`, native},
	exchange.FindSentMessage:  {`SELECT turn_id FROM replies WHERE native_key = $1 AND native_key <> '' AND native_id = $2 ORDER BY turn_id DESC LIMIT $3 + 0`, native},
	exchange.FindReference:    {`SELECT id FROM turns WHERE reference_key = $1 AND reference_key <> '' ORDER BY id DESC LIMIT $2 + 0`, hashed},
	exchange.FindWatch:        {findWebhook, plain},
	exchange.FindConversation: {`SELECT id FROM turns WHERE conversation = $1 AND conversation <> '' ORDER BY id DESC LIMIT $2 + 0`, called},
	exchange.FindRequest:      {`SELECT id FROM turns WHERE request = $1 AND request <> '' ORDER BY id DESC LIMIT $2 + 0`, plain},
	exchange.FindTrace:        {`SELECT id FROM turns WHERE substr(trace, 4, 32) = $1 AND trace <> '' ORDER BY id DESC LIMIT $2 + 0`, folded},
}

const findWebhook = `SELECT t.id FROM watches w JOIN turns t ON t.reference_key = w.reference_key AND t.owner_key = w.owner_key
	WHERE w.id = $1 AND w.reference_key <> '' AND t.reference_key <> '' ORDER BY t.id DESC LIMIT $2 + 0`

const findThread = `SELECT id FROM turns WHERE thread_key = $1 AND thread_id = $2 ORDER BY id DESC LIMIT $3 + 0`

// FindTurns returns the ids of at most limit turns to which an id of a kind leads, newest first. Kinds are the Find constants of
// package exchange; none are found by another.
func (s turnStore) FindTurns(ctx context.Context, kind, id string, limit int) ([]string, error) {
	way, known := lookups[kind]
	if !known || id == "" || !storable(id) {
		return nil, nil
	}
	return s.foundTurns(ctx, way.query, append(way.arguments(id), pageSize(limit)))
}

// FindThread returns the ids of at most limit turns of a thread of an agent, newest first.
func (s turnStore) FindThread(ctx context.Context, agent, threadID string, limit int) ([]string, error) {
	if threadID == "" || !storable(threadID) {
		return nil, nil
	}
	return s.foundTurns(ctx, findThread, []any{hashKey(agent, threadID), threadID, pageSize(limit)})
}

func (s turnStore) foundTurns(ctx context.Context, query string, arguments []any) (ids []string, err error) {
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var id string
		err := r.Scan(&id)
		if id != "" { // some audit records and notes about runs are about no message
			ids = append(ids, id)
		}
		return err
	})
	return ids, err
}

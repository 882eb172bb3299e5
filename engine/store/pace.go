package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/engine/pipeline"
	"inbox/normalized"
)

// The oldest turn of a thread is what transactions that look at its pace wait for one after the other: a newer one
// could be another one for each of them.
const (
	oldestOfThread = `SELECT id FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3 ORDER BY id LIMIT 1`
	newestOfThread = `SELECT message FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3
		AND state <> 'held' ORDER BY id DESC LIMIT 1`
	recentOfThread = `SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3
		AND principal = $4 AND id >= $5 AND accepted_at > $6 LIMIT 100) AS recent`
)

// Pace tells how a thread with another agent goes; see pipeline.Tx. It counts no further than 100.
func (t *Tx) Pace(ctx context.Context, agent, principal, threadID string, since time.Time) (pipeline.Pace, error) {
	var pace pipeline.Pace
	var id, message string
	thread := []any{hashKey(agent, threadID), cleaned(agent), cleaned(threadID)}
	found, err := first(ctx, t, oldestOfThread, thread, &id)
	if err != nil || !found {
		return pace, err
	}
	if err := t.holdTurn(ctx, id); err != nil {
		return pace, err
	}
	if found, err = first(ctx, t, newestOfThread, thread, &message); err != nil {
		return pace, err
	}
	if pace.Chain, err = chainOf(found, message); err != nil {
		return pace, fmt.Errorf("decode the newest message of a thread: %w", err)
	}
	var recent int64
	_, err = first(ctx, t, recentOfThread, append(thread, cleaned(principal), idSince(since), micros(since)), &recent)
	if err != nil {
		return pace, err
	}
	var total int64
	_, err = first(ctx, t, recentOfThread, append(thread[:3:3], cleaned(principal), "", int64(-1)), &total)
	pace.Recent, pace.Total = int(recent), int(total)
	return pace, err
}

func chainOf(found bool, message string) (*normalized.AgentChain, error) {
	if !found {
		return nil, nil
	}
	var m normalized.Message
	err := json.Unmarshal([]byte(message), &m)
	return m.RecipientCapabilities.AgentChain, err
}

// idSince is at most the id of every turn that was accepted since: a UUIDv7 begins with its milliseconds
// (RFC 9562, section 5.7).
func idSince(since time.Time) string {
	digits := fmt.Sprintf("%012x", max(since.UnixMilli(), 0))
	return digits[:8] + "-" + digits[8:]
}

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/exchange"
	"inbox/normalized"
)

const selectFirstTurn = `SELECT ` + turnColumns + `, COALESCE(r.response, '')` + turnsWithReplies +
	`WHERE t.thread_key = $1 AND t.agent = $2 AND t.thread_id = $3 ORDER BY t.id LIMIT 1`

// FirstTurn returns the first turn of an agent's thread with its response.
func (s turnStore) FirstTurn(ctx context.Context, agent, threadID string) (exchange.TurnRecord, bool, error) {
	if threadID == "" || !storable(threadID) {
		return exchange.TurnRecord{}, false, nil
	}
	return turnFrom(ctx, s.engine.Reader(), selectFirstTurn, hashKey(agent, threadID), agent, threadID)
}

const selectAnswered = `SELECT turn_id FROM replies WHERE native_key = $1 AND native_key <> '' AND native_id = $2 AND agent = $3 ORDER BY id LIMIT 1`

// AnsweredWith returns the id of the agent's turn that was answered with a reply of the native id. Messages of others with the same id
// are not looked at: their senders chose it.
func (s turnStore) AnsweredWith(ctx context.Context, agent, nativeID string) (turnID string, found bool, err error) {
	if nativeID == "" || !storable(nativeID) {
		return "", false, nil
	}
	found, err = first(ctx, s.engine.Reader(), selectAnswered, []any{hashKey(nativeID), nativeID, agent}, &turnID)
	return turnID, found, err
}

// maxSaid bounds the turns of a thread whose texts are compared with a message.
const maxSaid = 12

const selectSaid = `SELECT t.message, COALESCE(r.response, '')` + turnsWithReplies +
	`WHERE t.thread_key = $1 AND t.agent = $2 AND t.thread_id = $3 ORDER BY t.id DESC LIMIT $4 + 0`

// Said returns the texts of the newest twelve turns of an agent's thread and of their responses, newest first.
func (s turnStore) Said(ctx context.Context, agent, threadID string) (texts []string, err error) {
	if threadID == "" || !storable(threadID) {
		return nil, nil
	}
	err = s.engine.Reader().Each(ctx, selectSaid, []any{hashKey(agent, threadID), agent, threadID, int64(maxSaid)}, func(r row) error {
		var asked, answered string
		if err := r.Scan(&asked, &answered); err != nil {
			return err
		}
		for _, document := range []string{answered, asked} {
			var said struct {
				Parts []normalized.Part `json:"parts"`
			}
			if document == "" {
				continue
			}
			if err := json.Unmarshal([]byte(document), &said); err != nil {
				return fmt.Errorf("decode what was said in thread %s: %w", threadID, err)
			}
			for _, part := range said.Parts {
				if part.Kind == normalized.PartText {
					texts = append(texts, part.Content)
				}
			}
		}
		return nil
	})
	return texts, err
}

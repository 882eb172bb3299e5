package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
)

// maxSent bounds the agents whose copy of one message a change reaches.
const maxSent = 100

const selectSent = `SELECT t.id, t.state, t.message, t.route, t.history_turns, COALESCE(r.response, ''),
	CASE WHEN EXISTS (SELECT 1 FROM events e WHERE e.turn_id = t.id AND e.kind = '` + exchange.EventMessageEdited + `') THEN 1 ELSE 0 END
	FROM turns t LEFT JOIN replies r ON r.id = t.reply_id
	WHERE t.native_key = $1 AND t.native_id = $2 AND t.principal = $3 AND (t.agent = $4 OR $4 = '') ORDER BY t.id LIMIT $5 + 0`

// SentMessages returns the messages with the native id that the principal sent to the agent, or to any agent when it is
// empty, at most 100.
func (s turnStore) SentMessages(ctx context.Context, agent, nativeID, principal string) ([]pipeline.SentMessage, error) {
	if nativeID == "" || !storable(nativeID) || !storable(principal) || !storable(agent) {
		return nil, nil
	}
	var found []pipeline.SentMessage
	arguments := []any{hashKey(nativeID), nativeID, principal, agent, int64(maxSent)}
	err := s.engine.Reader().Each(ctx, selectSent, arguments, func(r row) error {
		sent, err := scanSent(r)
		found = append(found, sent)
		return err
	})
	return found, err
}

func scanSent(r row) (sent pipeline.SentMessage, err error) {
	var message, route, response string
	var turns, edited int64
	if err := r.Scan(&sent.TurnID, &sent.State, &message, &route, &turns, &response, &edited); err != nil {
		return sent, err
	}

	sent.Edited, sent.Route = edited == 1, rawJSON(route)
	if sent.Withdrawn, err = withdrawn(turns, sent.State, response); err != nil {
		return sent, fmt.Errorf("decode response of turn %s: %w", sent.TurnID, err)
	}
	if err := json.Unmarshal([]byte(message), &sent.Message); err != nil {
		return sent, fmt.Errorf("decode message of turn %s: %w", sent.TurnID, err)
	}

	return sent, nil
}

// withdrawn reports whether the question is out of the history for good: one turn of an exchange with a visible answer is
// the answer, and nothing is left of one without, unless it waits for the operator.
func withdrawn(turns int64, state, response string) (bool, error) {
	if turns != 1 || response == "" {
		return turns == 0 && state != exchange.StateHeld, nil
	}
	var answer normalized.Response
	err := json.Unmarshal([]byte(response), &answer)
	return historyTurns(answer) == 2, err
}

// AmendTurn stores the message in place of the one that is there.
func (t turnTx) AmendTurn(ctx context.Context, turnID string, message normalized.Message, at time.Time) error {
	message.History = nil
	body, err := message.AppendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}

	if err := t.search().changed(ctx, turnID); err != nil {
		return err
	}

	t.wake(ChannelTurn, turnID)
	return t.sql.Do(ctx, `UPDATE turns SET message = $1, updated_at = $2 WHERE id = $3`, cleaned(string(body)), micros(at), turnID)
}

// AmendRoute stores new notes on how to answer.
func (t turnTx) AmendRoute(ctx context.Context, turnID string, route json.RawMessage) error {
	return t.sql.Do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, cleaned(string(route)), turnID)
}

// Turns without an answer: what has a job, waits for a person, or waits for other agents.
const selectOpen = `SELECT t.id FROM jobs j JOIN turns t ON t.id = j.payload
		WHERE j.kind = $1 AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state IN ($4, $5)
	UNION SELECT t.id FROM demands d JOIN turns t ON t.id = d.turn_id
		WHERE d.status IN ('issued', 'claimed') AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state = $6
	UNION SELECT t.id FROM jobs j JOIN dispatches d ON d.id = j.payload JOIN turns t ON t.id = d.turn_id
		WHERE j.kind = $7 AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state = $6
	UNION SELECT t.id FROM takeovers o JOIN turns t ON t.thread_key = o.thread_key
		WHERE o.ended_at = 0 AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND ` + waitingOperator

// OpenTurns returns the ids of the principal's turns that run, are to run or wait for a person; empty agent = of any.
func (s turnStore) OpenTurns(ctx context.Context, agent, principal string) (ids []string, err error) {
	if !storable(principal) || !storable(agent) {
		return nil, nil
	}
	arguments := []any{
		pipeline.JobKind, principal, agent, exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, pipeline.DispatchKind,
	}
	return column[string](ctx, s.engine.Reader(), selectOpen, arguments)
}

const selectWithdrawn = `SELECT t.state, t.history_turns, COALESCE(r.response, '')
	FROM turns t LEFT JOIN replies r ON r.id = t.reply_id WHERE t.id = $1`

// WithdrawTurn takes the question of a turn out of the history and erases what it said; a visible answer stays. It reports
// whether the question was there.
func (t turnTx) WithdrawTurn(ctx context.Context, turnID string, at time.Time) (bool, error) {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return false, err
	}
	var state, response string
	var turns int64
	found, err := first(ctx, t.sql, selectWithdrawn, []any{turnID}, &state, &turns, &response)
	if err != nil || !found || turns == 0 {
		return false, err
	}

	if gone, err := withdrawn(turns, state, response); err != nil || gone {
		return false, err
	}
	t.wake(ChannelTurn, turnID)
	if err := t.sql.Do(ctx, `UPDATE turns SET history_turns = $1, updated_at = $2 WHERE id = $3`, turns-1, micros(at), turnID); err != nil {
		return false, err
	}

	return true, t.erasure().erase(ctx, turnID, response == "")
}

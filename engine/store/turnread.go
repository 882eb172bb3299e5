package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
)

const turnsWithReplies = ` FROM turns t LEFT JOIN replies r ON r.id = t.reply_id `

const selectTurn = `SELECT ` + turnColumns + `, COALESCE(r.response, '')` + turnsWithReplies + `WHERE t.id = $1`

// Turn returns one turn with its response; fault.NotFound when there is none.
func (s *Store) Turn(ctx context.Context, id string) (exchange.TurnRecord, error) {
	turn, found, err := turnFrom(ctx, s.engine.reader(), selectTurn, id)
	if err == nil && !found {
		err = notFound("turn")
	}
	return turn, err
}

func turnFrom(ctx context.Context, from querier, query string, arguments ...any) (exchange.TurnRecord, bool, error) {
	var turn exchange.TurnRecord
	found := false
	err := from.each(ctx, query, arguments, func(r row) (err error) {
		found = true
		turn, err = scanTurn(r)
		return err
	})
	return turn, found, err
}

// scanTurn reads turnColumns, the response and then the extra columns.
func scanTurn(r row, extra ...any) (exchange.TurnRecord, error) {
	var t exchange.TurnRecord
	var accepted, updated, shared int64
	var resumed, route, message, response string
	columns := append([]any{
		&t.ID, &t.Agent, &t.Principal, &t.ThreadID, &t.Reference, &t.State, &t.Reason, &t.Attempt,
		&t.ReplyID, &accepted, &updated, &shared, &resumed, &t.Network, &t.Channel, &route, &message, &response,
	}, extra...)
	if err := r.Scan(columns...); err != nil {
		return t, err
	}
	t.AcceptedAt, t.UpdatedAt, t.Route = instant(accepted), instant(updated), rawJSON(route)
	t.Shared = shared == 1
	if err := json.Unmarshal([]byte(message), &t.Message); err != nil {
		return t, fmt.Errorf("decode message of turn %s: %w", t.ID, err)
	}
	t.Channel = channelOf(t.Channel, t.Message.ReceivedVia, route)
	if err := fillResumed(&t, resumed); err != nil || response == "" {
		return t, err
	}
	t.Response = new(normalized.Response)
	if err := json.Unmarshal([]byte(response), t.Response); err != nil {
		return t, fmt.Errorf("decode response of turn %s: %w", t.ID, err)
	}
	return t, nil
}

// The reply's id wins: it is ours, while a message's id is whatever its sender wrote.
const selectMessage = `SELECT t.id, t.thread_id, t.reference, t.route, t.message FROM (
		SELECT r.turn_id AS id, 0 AS rank FROM replies r
			WHERE r.native_key = $1 AND r.native_key <> '' AND r.native_id = $2 AND r.agent = $3
		UNION ALL
		SELECT m.id, 1 FROM turns m WHERE m.native_key = $1 AND m.native_id = $2 AND m.agent = $3
	) AS hit JOIN turns t ON t.id = hit.id ORDER BY hit.rank, t.id LIMIT 1`

// FindMessage finds an agent's stored message by its native id or by the native id of its reply. Of several
// messages with the id (from several senders) it returns the first that was accepted.
func (s *Store) FindMessage(ctx context.Context, agent, nativeID string) (exchange.ThreadEntry, bool, error) {
	var entry exchange.ThreadEntry
	var route, message string
	if nativeID == "" || !storable(nativeID) {
		return entry, false, nil
	}
	found, err := first(ctx, s.engine.reader(), selectMessage, []any{hashKey(nativeID), nativeID, agent},
		&entry.TurnID, &entry.ThreadID, &entry.Reference, &route, &message)
	if err != nil || !found {
		return entry, false, err
	}
	entry.Route = rawJSON(route)
	if err := json.Unmarshal([]byte(message), &entry.Message); err != nil {
		return entry, false, fmt.Errorf("decode message of turn %s: %w", entry.TurnID, err)
	}
	return entry, true, nil
}

const selectOriginal = `SELECT media_type, encoding, body FROM originals WHERE digest = $1`

// Original returns the native form of a message; Body is nil when the bytes are in the blob store. fault.NotFound
// when there is none.
func (s *Store) Original(ctx context.Context, digest string) (pipeline.Original, error) {
	original := pipeline.Original{Digest: digest}
	var encoding, body string
	found, err := first(ctx, s.engine.reader(), selectOriginal, []any{digest}, &original.MediaType, &encoding, &body)
	if err == nil && !found {
		err = notFound("original")
	}
	if err != nil {
		return pipeline.Original{}, err
	}
	original.Body, err = decodeBody(encoding, body)
	return original, err
}

const selectTurnOf = `SELECT id FROM turns WHERE native_key = $1 AND native_id = $2 AND principal = $3 ORDER BY id DESC LIMIT 1`

// TurnOf returns the newest turn of a principal whose message has the native id, whatever agent it went to; fault.NotFound
// when there is none.
func (s *Store) TurnOf(ctx context.Context, principal, nativeID string) (exchange.TurnRecord, error) {
	if !storable(principal) || !storable(nativeID) {
		return exchange.TurnRecord{}, notFound("turn")
	}
	id := ""
	err := s.engine.reader().each(ctx, selectTurnOf, []any{hashKey(nativeID), nativeID, principal}, func(r row) error { return r.Scan(&id) })
	if err != nil {
		return exchange.TurnRecord{}, err
	}
	return s.Turn(ctx, id)
}

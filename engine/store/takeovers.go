package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
)

// takeoverStore finds conversations that operators have taken over.
type takeoverStore struct{ *shared }

// takeoverTx changes them in a transaction, and what they are about.
type takeoverTx struct{ *transaction }

const takeoverColumns = `id, agent, thread_id, holder, began_at, touched_at, ended_at, ended_by, note, dropped, told_turn`

func scanTakeover(r row, extra ...any) (exchange.Takeover, error) {
	var t exchange.Takeover
	var began, touched, ended, dropped int64
	columns := []any{&t.ID, &t.Agent, &t.ThreadID, &t.Holder, &began, &touched, &ended, &t.EndedBy, &t.Note, &dropped, &t.ToldTurn}
	err := r.Scan(append(columns, extra...)...)
	t.Since, t.TouchedAt, t.EndedAt, t.Dropped = instant(began), instant(touched), instant(ended), dropped == 1
	return t, err
}

// Takeover returns the newest takeover of a conversation, which may have ended; found is false where there was none.
func (s takeoverStore) Takeover(ctx context.Context, agent, threadID string) (t exchange.Takeover, found bool, err error) {
	const query = `SELECT ` + takeoverColumns + ` FROM takeovers WHERE thread_key = $1 ORDER BY id DESC LIMIT 1`
	err = s.engine.Reader().Each(ctx, query, []any{hashKey(agent, threadID)}, func(r row) error {
		t, err = scanTakeover(r)
		found = true
		return err
	})
	return t, found, err
}

// maxWaitingOfThread is where the waiting messages of a conversation are counted no further.
const maxWaitingOfThread = exchange.MaxWaitingOfThread

// waitingOperator are the turns of a conversation that wait for an operator, in the words of the index turns_thread_open.
const waitingOperator = openStates + ` AND t.state = '` + exchange.StateWaiting + `' AND t.reason = '` + exchange.WaitingOperator + `'`

// Takeovers lists takeovers, newest first, with the number of messages that wait in each.
func (s takeoverStore) Takeovers(ctx context.Context, filter exchange.TakeoverFilter) (found []exchange.Takeover, err error) {
	var chosen selection
	chosen.addWhen(!filter.All, "o.ended_at = 0")
	chosen.addWhen(filter.Agent != "", "o.agent = ?", filter.Agent)
	chosen.addWhen(filter.Holder != "", "o.holder = ?", filter.Holder)
	chosen.addWhen(filter.Before != "", "o.id < ?", filter.Before)
	chosen.arguments = append(chosen.arguments, pageSize(filter.Limit))
	query := fmt.Sprintf(`SELECT %s, CASE WHEN o.ended_at > 0 THEN 0 ELSE (SELECT COUNT(*) FROM (SELECT 1 FROM turns t
		WHERE t.thread_key = o.thread_key AND %s LIMIT %d) AS waiting) END
		FROM takeovers o%s ORDER BY o.id DESC LIMIT $%d + 0`, takeoverColumns, waitingOperator, maxWaitingOfThread, chosen.sql(), len(chosen.arguments))
	err = s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		var waiting int64
		t, err := scanTakeover(r, &waiting)
		t.Waiting = int(waiting)
		found = append(found, t)
		return err
	})
	return found, err
}

// Thread names a conversation.
type Thread struct{ Agent, ID string }

// maxHolders bounds the conversations whose holders are listed together.
const maxHolders = 10_000

// Holders returns the operators who have conversations of the agent, of all when it is empty.
func (s takeoverStore) Holders(ctx context.Context, agent string) (map[Thread]string, error) {
	holders := map[Thread]string{}
	const query = `SELECT agent, thread_id, holder FROM takeovers WHERE ended_at = 0 AND (agent = $1 OR $1 = '') LIMIT $2 + 0`
	err := s.engine.Reader().Each(ctx, query, []any{agent, int64(maxHolders)}, func(r row) error {
		var thread Thread
		var holder string
		err := r.Scan(&thread.Agent, &thread.ID, &holder)
		holders[thread] = holder
		return err
	})
	return holders, err
}

// WaitingForOperator returns turns of a conversation that wait for an operator, oldest first.
func (s takeoverStore) WaitingForOperator(ctx context.Context, agent, threadID string, limit int) ([]string, error) {
	const query = `SELECT t.id FROM turns t WHERE t.thread_key = $1 AND ` + waitingOperator + ` ORDER BY t.id LIMIT $2 + 0`
	var err error
	return mustColumn(ctx, s.engine.Reader(), &err, query, hashKey(agent, threadID), int64(limit)), err
}

// IdleTakeovers returns those with ids after the given one that are open and in which no operator did anything since the instant, oldest first.
func (s takeoverStore) IdleTakeovers(ctx context.Context, before time.Time, after string, limit int) (found []exchange.Takeover, err error) {
	const query = `SELECT ` + takeoverColumns + ` FROM takeovers WHERE ended_at = 0 AND touched_at <= $1 AND id > $3 ORDER BY id LIMIT $2 + 0`
	err = s.engine.Reader().Each(ctx, query, []any{micros(s.stored(before)), int64(limit), after}, func(r row) error {
		t, err := scanTakeover(r)
		found = append(found, t)
		return err
	})
	return found, err
}

// LeftBehind returns turns that wait for an operator although no one has their conversation, and whether the last one let what waited
// go without an answer: a process died while it handed back. The ids of the turns are after the given one.
func (s takeoverStore) LeftBehind(ctx context.Context, after string, limit int) (found []pipeline.LeftBehind, err error) {
	const query = `SELECT t.id, COALESCE((SELECT e.dropped FROM takeovers e WHERE e.thread_key = t.thread_key ORDER BY e.id DESC LIMIT 1), 0)
		FROM turns t WHERE ` + waitingOperator + ` AND NOT EXISTS (SELECT 1 FROM takeovers o WHERE o.thread_key = t.thread_key AND o.ended_at = 0)
		AND t.id > $2 ORDER BY t.id LIMIT $1 + 0`
	err = s.engine.Reader().Each(ctx, query, []any{int64(limit), after}, func(r row) error {
		var one pipeline.LeftBehind
		var dropped int64
		err := r.Scan(&one.TurnID, &dropped)
		one.Dropped = dropped == 1
		found = append(found, one)
		return err
	})
	return found, err
}

const selectDraft = `SELECT ` + replyColumns + ` FROM replies r JOIN turns t ON t.id = r.turn_id WHERE r.turn_id = $1 AND r.notice = -2`

// Draft returns what the agent said while an operator had the conversation; fault.NotFound when it said nothing.
func (s replyStore) Draft(ctx context.Context, turnID string) (exchange.Reply, error) {
	reply, _, err := s.one(ctx, selectDraft, turnID)
	return reply, err
}

// BeginTakeover stores a takeover unless the conversation has one that is open; it returns the open one, and whether it is new.
func (t takeoverTx) BeginTakeover(ctx context.Context, begin exchange.Takeover) (open exchange.Takeover, began bool, err error) {
	if err := requireStorable("agent", begin.Agent, "thread_id", begin.ThreadID, "by", begin.Holder); err != nil {
		return open, false, err
	}
	inserted, err := t.sql.Change(ctx, `INSERT INTO takeovers (id, thread_key, agent, thread_id, holder, began_at, touched_at, ended_at, ended_by, note, dropped, told_turn)
		VALUES ($1, $2, $3, $4, $5, $6, $6, 0, '', '', 0, '') ON CONFLICT (thread_key) WHERE ended_at = 0 DO NOTHING`,
		begin.ID, hashKey(begin.Agent, begin.ThreadID), begin.Agent, begin.ThreadID, begin.Holder, micros(begin.Since))
	if err != nil || inserted > 0 {
		return begin, err == nil, err
	}
	open, _, err = t.HoldTakeover(ctx, begin.Agent, begin.ThreadID)
	return open, false, err
}

// HoldTakeover returns the takeover of a conversation that is open, which stays so until the commit; found is false where none is.
func (t takeoverTx) HoldTakeover(ctx context.Context, agent, threadID string) (open exchange.Takeover, found bool, err error) {
	const query = `UPDATE takeovers SET holder = holder WHERE thread_key = $1 AND ended_at = 0 RETURNING ` + takeoverColumns
	err = t.sql.Each(ctx, query, []any{hashKey(agent, threadID)}, func(r row) error {
		open, err = scanTakeover(r)
		found = true
		return err
	})
	return open, found, err
}

// PutTakeover writes who has a conversation now, since when, and when an operator did something in it last.
func (t takeoverTx) PutTakeover(ctx context.Context, open exchange.Takeover) error {
	return t.sql.Do(ctx, `UPDATE takeovers SET holder = $1, began_at = $2, touched_at = $3 WHERE id = $4 AND ended_at = 0`,
		open.Holder, micros(open.Since), micros(open.TouchedAt), open.ID)
}

// EndTakeover ends one that is open and reports whether it was.
func (t takeoverTx) EndTakeover(ctx context.Context, ended exchange.Takeover) (bool, error) {
	changed, err := t.sql.Change(ctx, `UPDATE takeovers SET ended_at = $1, ended_by = $2, note = $3, dropped = $4 WHERE id = $5 AND ended_at = 0`,
		micros(ended.EndedAt), cleaned(ended.EndedBy), cleaned(ended.Note), flag(ended.Dropped), ended.ID)
	return changed > 0, err
}

// TellOfTakeover makes the turn the one whose agent is told of the end, unless it is another one, and reports whether it is.
func (t takeoverTx) TellOfTakeover(ctx context.Context, id, turnID string) (bool, error) {
	changed, err := t.sql.Change(ctx, `UPDATE takeovers SET told_turn = $1 WHERE id = $2 AND (told_turn = '' OR told_turn = $1)`, turnID, id)
	return changed > 0, err
}

// ParkThread lets the turns of a conversation wait for an operator that an agent runs, or is to run, and returns them. Those that have
// the answer of an operator already go on.
func (t takeoverTx) ParkThread(ctx context.Context, agent, threadID string, at time.Time) (parked []string, err error) {
	const query = `SELECT t.id, t.resumed FROM turns t WHERE t.thread_key = $1 AND ` + openStates + ` AND t.state IN ('` +
		exchange.StateAccepted + `', '` + exchange.StateRunning + `') ORDER BY t.id`
	var open []string
	err = t.sql.Each(ctx, query, []any{hashKey(agent, threadID)}, func(r row) error {
		var id, stored string
		if err := r.Scan(&id, &stored); err != nil {
			return err
		}
		resumed, err := decodeResumption(id, stored)
		if err == nil && !resumed.pending() {
			open = append(open, id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	for _, id := range open {
		moved, err := t.turns().MoveTurn(ctx, pipeline.TakenOver.Move(id, exchange.StateWaiting, exchange.WaitingOperator, at))
		if err != nil {
			return nil, err
		}
		if moved {
			parked = append(parked, id)
		}
	}
	return parked, nil
}

// WriteAnswer lets a turn be accepted again with the answer of an operator, if its row is still as it was read, and reports whether it
// did. An answer that it has becomes one before the new one.
func (t takeoverTx) WriteAnswer(ctx context.Context, turn exchange.TurnRecord, written exchange.WrittenAnswer) (bool, error) {
	attempt := turn.Attempt + 1
	move := pipeline.Written.Move(turn.ID, exchange.StateAccepted, "answered by "+written.By, written.At)
	move.Attempt, move.Unchanged = attempt, turn.UpdatedAt
	moved, err := t.turns().MoveTurn(ctx, move)
	if err != nil || !moved {
		return false, err
	}

	if err := t.sql.Do(ctx, demoteReply, turn.ID, int64(attempt)); err != nil {
		return false, err
	}
	if err := t.search().changed(ctx, turn.ID); err != nil {
		return false, err
	}

	next := resumption{Retried: turn.ReplyID, Written: &written, Said: turn.Said}
	if turn.State == exchange.StateAnswered {
		said := exchange.SaidAnswer{ReplyID: turn.ReplyID}
		if turn.Written != nil {
			said.By = turn.Written.By
		}
		next.Said = append(next.Said, said)
	}
	resumed, err := t.turns().mergedResumption(ctx, turn.ID, next)
	if err != nil {
		return false, err
	}
	return true, t.sql.Do(ctx, `UPDATE turns SET reply_id = '', outcome = '', resumed = $2,
		history_turns = CASE WHEN history_turns = 0 THEN 0 ELSE 1 END WHERE id = $1`, turn.ID, resumed)
}

// SpendAnswer forgets the words of an operator's answer that is the turn's reply now; who wrote it stays.
func (t takeoverTx) SpendAnswer(ctx context.Context, turn exchange.TurnRecord) error {
	spent := *turn.Written
	spent.Parts = nil
	resumed, err := t.turns().mergedResumption(ctx, turn.ID, resumption{Written: &spent})
	if err != nil {
		return err
	}
	return t.sql.Do(ctx, `UPDATE turns SET resumed = $2 WHERE id = $1`, turn.ID, resumed)
}

// PutDraft keeps what an agent said for a turn that waits for an operator, in place of an earlier draft, and reports whether the turn
// waits so.
func (t takeoverTx) PutDraft(ctx context.Context, draft exchange.Reply) (bool, error) {
	if err := t.holdTurn(ctx, draft.TurnID); err != nil {
		return false, err
	}
	var id string
	query := `SELECT t.id FROM turns t WHERE t.id = $1 AND ` + waitingOperator
	if waits, err := first(ctx, t.sql, query, []any{draft.TurnID}, &id); err != nil || !waits {
		return false, err
	}
	if err := t.sql.Do(ctx, `DELETE FROM replies WHERE turn_id = $1 AND notice = -2`, draft.TurnID); err != nil {
		return false, err
	}

	draft.Notice = exchange.NoticeDraft
	if _, err := t.replies().insertReply(ctx, draft, ""); err != nil {
		return false, err
	}
	body, err := json.Marshal(map[string]string{"reply": draft.ID})
	if err != nil {
		return false, fmt.Errorf("encode event: %w", err)
	}
	return true, t.AppendEvents(ctx, draft.TurnID, []exchange.Event{{Kind: exchange.EventDraftKept, Body: body, At: draft.CreatedAt}})
}

// answerKeys has the keys by which repeats of an operator's answer are recognised: hash → turn id.
const answerKeys = "operator.answers"

// ClaimAnswer keeps that the answer with the key is that of the turn until then, unless one with the key is there; it returns the turn
// of that one, empty for none.
func (t takeoverTx) ClaimAnswer(ctx context.Context, key, turnID string, until time.Time) (instead string, err error) {
	key = hashKey(key)
	encoding, text := encodeBody([]byte(turnID))
	changed, err := t.sql.Change(ctx, putDocumentIfAbsent, answerKeys, key, encoding, text, micros(t.stored(until)), t.nowMicros())
	if err != nil || changed > 0 {
		return "", err
	}
	value, _, err := getDocument(ctx, t.sql, t.nowMicros(), answerKeys, key)
	return string(value), err
}

const (
	// takeoverAge is how long ended takeovers stay.
	takeoverAge = 90 * 24 * time.Hour

	sweepTakeovers = `DELETE FROM takeovers WHERE id IN (SELECT id FROM takeovers WHERE ended_at > 0 AND ended_at <= $1 ORDER BY ended_at, id LIMIT $2 + 0)`

	// What an operator noted about a conversation, and its agent has been told, goes with the words of any of its messages.
	forgetTakeoverNotes = `UPDATE takeovers SET note = '' WHERE thread_key = (SELECT thread_key FROM turns WHERE id = $1) AND told_turn <> '' AND note <> ''`

	// The name of a conversation may be that of a person: no row of it stays without a message.
	removeTakeovers = `DELETE FROM takeovers WHERE thread_key = (SELECT thread_key FROM turns WHERE id = $1) AND (ended_at > 0 OR NOT EXISTS
		(SELECT 1 FROM turns t WHERE t.thread_key = takeovers.thread_key AND t.id <> $1))`
)

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// turnTx changes turns in a transaction.
type turnTx struct{ *transaction }

const turnColumns = `t.id, t.agent, t.principal, t.thread_id, t.reference, t.state, t.reason, t.attempt,
	t.reply_id, t.accepted_at, t.updated_at, t.person_shared, t.resumed, t.network, t.channel, t.trace, t.request, t.carrier, t.audience, t.route, t.message`

// insertTurn holds the task of the turn until the commit, so that of two turns that are stored at once the second one sees the first.
const insertTurn = `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference,
	native_key, sender_key, thread_key, owner_key, reference_key,
	state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message,
	history_turns, person_shared, network, channel, trace, conversation, request, sender, sender_domain, audience, carrier, person_key, latest, watched)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '', $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33,
	CASE WHEN $13 <> ''{hold task} THEN 1 ELSE 0 END,
	CASE WHEN $13 <> '' AND EXISTS (SELECT 1 FROM watches w WHERE w.owner_key = $12 AND w.reference_key = $13) THEN 1 ELSE 0 END)
	ON CONFLICT (native_key, sender_key) DO NOTHING RETURNING {follows}`

// inTask is whether a new turn may follow others of its task. SQLite has one writer and knows; PostgreSQL took its view of the rows before
// it waited for the one that holds the task.
const (
	inTask        = `CASE WHEN reference_key <> '' THEN 1 ELSE 0 END`
	followsInTask = `(reference_key <> '' AND EXISTS (SELECT 1 FROM turns n WHERE n.owner_key = turns.owner_key AND n.reference_key = turns.reference_key AND n.reference_key <> '' AND n.id <> turns.id))`
)

// The turn before in the same task is in the index that finds it by its reference. A turn may be stored behind one with a later id.
const supersedeTurns = `UPDATE turns SET latest = 0 WHERE owner_key = $1 AND reference_key = $2 AND reference_key <> '' AND latest = 1
	AND id < (SELECT MAX(n.id) FROM turns n WHERE n.owner_key = $1 AND n.reference_key = $2 AND n.reference_key <> '')`

const insertOriginal = `INSERT INTO originals (digest, media_type, encoding, body) VALUES ($1, $2, $3, $4)
	ON CONFLICT (digest) DO NOTHING`

const firstEvent = `INSERT INTO events (turn_id, seq, kind, body, at) VALUES ($1, 1, $2, $3, $4)`

// InsertTurn stores the turn, its original and its first timeline row; see pipeline.Tx. A text that PostgreSQL
// cannot keep is fault.Malformed.
func (t turnTx) InsertTurn(
	ctx context.Context, turn exchange.TurnRecord, original pipeline.Original,
) (exchange.TurnRecord, bool, error) {
	arguments, err := turnArguments(turn, original)
	if err != nil {
		return exchange.TurnRecord{}, false, err
	}

	var follows int64
	inserted, err := first(ctx, t.sql, t.dialect.insertTurn, arguments, &follows)
	if err != nil {
		return exchange.TurnRecord{}, false, err
	}
	if !inserted {
		stored, err := t.sameTurn(ctx, turn)
		return stored, false, err
	}

	if err := t.insertParties(ctx, turn); err != nil {
		return exchange.TurnRecord{}, false, err
	}
	if follows != 0 && !turn.Begins {
		if err := t.sql.Do(ctx, supersedeTurns, ownerKey(turn), hashKey(turn.Reference)); err != nil {
			return exchange.TurnRecord{}, false, err
		}
	}
	if err := t.insertOriginal(ctx, original); err != nil {
		return exchange.TurnRecord{}, false, err
	}

	if turn.State == exchange.StateHeld {
		t.count(exchange.NoticeHeld, turn.Agent, exchange.NoticeExample{ID: turn.ID, Note: turn.Reason})
	}
	if err := t.search().came(ctx, turn.ID); err != nil {
		return exchange.TurnRecord{}, false, err
	}

	t.wake(ChannelTurn, turn.ID)
	turn.Encoded, turn.Begins = nil, false
	body := stateBody(turn.Reason, turn.Attempt)
	return turn, true, t.sql.Do(ctx, firstEvent, turn.ID, "turn."+turn.State, body, micros(turn.AcceptedAt))
}

func turnArguments(turn exchange.TurnRecord, original pipeline.Original) ([]any, error) {
	m := turn.Message
	err := requireStorable("id", turn.ID, "agent", turn.Agent, "recipient", m.Recipient, "principal", turn.Principal,
		"id", m.ID, "thread_id", turn.ThreadID, "carrier", turn.Carrier, "reference", turn.Reference, "received_via", m.ReceivedVia, "channel", turn.Channel)
	if err != nil {
		return nil, err
	}

	message := turn.Encoded
	if len(message) == 0 {
		m.History = nil
		if message, err = m.AppendJSON(nil); err != nil {
			return nil, fmt.Errorf("encode message: %w", err)
		}
	}

	updated := turn.UpdatedAt
	if updated.IsZero() {
		updated = turn.AcceptedAt
	}

	sender, domain := senderColumns(m.Sender.Address.String())
	return []any{
		turn.ID, turn.Agent, m.Recipient, m.ReceivedVia, turn.Principal, m.ID, turn.ThreadID, turn.Reference,
		hashKey(m.ID), senderKey(turn), hashKey(turn.Agent, turn.ThreadID),
		ownerKey(turn), optionalKey(turn.Reference),
		turn.State, cleaned(turn.Reason), int64(turn.Attempt), micros(turn.AcceptedAt), micros(updated),
		original.Digest, cleaned(string(turn.Route)), cleaned(string(message)),
		flag(turn.State != exchange.StateHeld), flag(turn.Shared), turn.Network, turn.Channel, turn.Trace,
		conversationName(turn.Conversation, turn.ThreadID), turn.Request, sender, domain, audienceMark(turn.Audience),
		turn.Carrier, hashKey(turn.Agent, turn.Principal),
	}, nil
}

// senderKey tells apart who may use one native id: the speaker, and where someone brought the message also who did.
func senderKey(turn exchange.TurnRecord) string {
	if turn.Carrier == "" {
		return hashKey(turn.Message.Recipient, turn.Message.ReceivedVia, turn.Principal)
	}
	return hashKey(turn.Message.Recipient, turn.Message.ReceivedVia, turn.Principal, turn.Carrier)
}

// ownerKey names to whom the task of a turn belongs.
func ownerKey(turn exchange.TurnRecord) string { return hashKey(turn.Agent, turn.BroughtBy()) }

func (t turnTx) insertOriginal(ctx context.Context, original pipeline.Original) error {
	if original.Digest == "" {
		return nil
	}
	encoding, body := encodingBlob, ""
	if original.Body != nil {
		encoding, body = encodeBody(original.Body)
	}

	return t.sql.Do(ctx, insertOriginal, original.Digest, cleaned(original.MediaType), encoding, body)
}

const selectSameTurn = `SELECT ` + turnColumns + `, COALESCE(r.response, '')
	FROM turns t LEFT JOIN replies r ON r.id = t.reply_id
	WHERE t.native_key = $1 AND t.sender_key = $2
	AND t.native_id = $3 AND t.recipient = $4 AND t.received_via = $5 AND t.principal = $6 AND t.carrier = $7`

// sameTurn finds the first copy of a message.
func (t turnTx) sameTurn(ctx context.Context, turn exchange.TurnRecord) (exchange.TurnRecord, error) {
	m := turn.Message
	stored, found, err := turnFrom(ctx, t.sql, selectSameTurn, hashKey(m.ID),
		senderKey(turn), m.ID, m.Recipient, m.ReceivedVia, turn.Principal, turn.Carrier)
	if err == nil && !found {
		err = fault.New(fault.Conflict, "another message has the same key")
	}
	return stored, err
}

// movedHistory: a held message is no part of the conversation, and becomes one when the operator lets it in.
const movedHistory = `CASE WHEN $1 = 'held' THEN 0 WHEN state = 'held' AND $1 = 'accepted' THEN 1 ELSE history_turns END`

// MoveTurn changes a turn's state when it is in one of the states of move.From, and writes "turn.<to>" to the
// timeline. It reports whether it did.
func (t turnTx) MoveTurn(ctx context.Context, move pipeline.Move) (bool, error) {
	if move.GivenUp {
		return t.moveTurn(ctx, move, `outcome = '`+exchange.OutcomeGivenUp+`', history_turns = `+movedHistory)
	}
	return t.moveTurn(ctx, move, `history_turns = `+movedHistory)
}

// moveText chooses the text of moveTurn. There are few, and each is made once.
type moveText struct {
	more         string
	values, from int
	unchanged    bool
}

var moveTexts sync.Map // moveText → string

func (m moveText) query() string {
	known, _ := moveTexts.Load(m)
	if query, is := known.(string); is {
		return query
	}
	query := `UPDATE turns SET state = $1, reason = $2, attempt = CASE WHEN $3 > 0 THEN $3 ELSE attempt END,
		updated_at = $4, ` + m.more + ` WHERE id = $5 AND state IN (` + placeholders(6+m.values, m.from) + `)`
	if m.unchanged {
		query += ` AND updated_at = $` + strconv.Itoa(6+m.values+m.from)
	}
	query += ` RETURNING watched, agent`
	moveTexts.Store(m, query)
	return query
}

// moveTurn also sets columns; their parameters are numbered from $6.
func (t turnTx) moveTurn(ctx context.Context, move pipeline.Move, more string, values ...any) (bool, error) {
	arguments := append([]any{move.To, cleaned(move.Reason), int64(move.Attempt), micros(move.At), move.ID}, values...)
	for _, state := range move.From {
		arguments = append(arguments, state)
	}

	if !move.Unchanged.IsZero() {
		arguments = append(arguments, micros(move.Unchanged))
	}

	var watched int64
	var agent string
	query := moveText{more, len(values), len(move.From), !move.Unchanged.IsZero()}.query()
	if moved, err := first(ctx, t.sql, query, arguments, &watched, &agent); err != nil || !moved {
		return false, err
	}

	switch example := (exchange.NoticeExample{ID: move.ID, Note: move.Reason}); move.To {
	case exchange.StateFailed:
		t.count(exchange.NoticeTurn, agent, example)
	case exchange.StateHeld:
		t.count(exchange.NoticeHeld, agent, example)
	}

	if slices.ContainsFunc(move.From, exchange.Terminal) {
		if err := t.search().displaced(ctx, move.ID); err != nil {
			return false, err
		}
	}
	if slices.Contains(move.From, exchange.StateHeld) {
		if err := t.quotas().leftHold(ctx, move.ID, move.To); err != nil {
			return false, err
		}
	}

	t.wake(ChannelTurn, move.ID)
	own := exchange.Event{Kind: "turn." + move.To, Body: []byte(stateBody(move.Reason, move.Attempt)), At: move.At}
	if err := t.appendEvents(ctx, move.ID, append(slices.Clip(move.Before), own)); err != nil || watched == 0 {
		return err == nil, err
	}

	return true, tellWatches(ctx, t.transaction, move)
}

// stateBody is the body of a "turn.<state>" row: why, and in which run.
func stateBody(reason string, attempt int) string {
	switch {
	case reason == "" && attempt == 0:
		return ""
	case reason == "":
		return `{"attempt":` + strconv.Itoa(attempt) + `}`
	}

	body, err := json.Marshal(struct {
		Reason  string `json:"reason,omitempty"`
		Attempt int    `json:"attempt,omitempty"`
	}{cleaned(reason), attempt})
	if err != nil {
		return "" // a string and a number always encode
	}

	return string(body)
}

// resumption is what a parked turn is resumed with, or a failed one is run again after.
type resumption struct {
	Resolution *policypart.Resolution `json:"policy_resolution,omitempty"`
	Trace      *normalized.Response   `json:"received_trace,omitempty"`
	Retried    string                 `json:"retried,omitempty"` // id of the reply before the operator ran the turn again

	Written *exchange.WrittenAnswer `json:"written,omitempty"` // by an operator
	Said    []exchange.SaidAnswer   `json:"said,omitempty"`    // answers before the newest one
}

// pending reports whether an operator's answer has not left yet.
func (r resumption) pending() bool { return r.Written != nil && len(r.Written.Parts) > 0 }

// reasonResumed is the reason of a turn that was parked and runs again.
const reasonResumed = "resumed"

// The transition pipeline.Resumed.
const resumeTurn = `UPDATE turns SET state = '` + exchange.StateAccepted + `', reason = $1, resumed = $2, updated_at = $3
	WHERE id = $4 AND state = '` + exchange.StateWaiting + `'`

// ResumeTurn lets a waiting turn run again with what it waited for, and writes "turn.accepted" to the timeline. What is
// nil stays as an earlier resumption left it, so that an agent that asked others and then for consent sees both. It
// reports whether the turn was waiting.
func (t turnTx) ResumeTurn(
	ctx context.Context, turnID string, resolution *policypart.Resolution, trace *normalized.Response, at time.Time,
) (bool, error) {
	stored, err := t.mergedResumption(ctx, turnID, resumption{Resolution: resolution, Trace: trace})
	if err != nil {
		return false, err
	}
	if changed, err := t.sql.Change(ctx, resumeTurn, reasonResumed, stored, micros(at), turnID); err != nil || changed == 0 {
		return false, err
	}

	t.wake(ChannelTurn, turnID)
	body := stateBody(reasonResumed, 0)
	return true, t.appendEvent(ctx, turnID, "turn."+exchange.StateAccepted, body, micros(at))
}

func (t turnTx) mergedResumption(ctx context.Context, turnID string, next resumption) (string, error) {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return "", err
	}
	var stored string
	if _, err := first(ctx, t.sql, `SELECT resumed FROM turns WHERE id = $1`, []any{turnID}, &stored); err != nil {
		return "", err
	}

	before, err := decodeResumption(turnID, stored)
	if err != nil {
		return "", err
	}
	if next.Resolution == nil {
		next.Resolution = before.Resolution
	}
	if next.Trace == nil {
		next.Trace = before.Trace
	}
	if next.Retried == "" {
		next.Retried = before.Retried
	}
	if next.Written == nil {
		next.Written = before.Written
	}
	if next.Said == nil {
		next.Said = before.Said
	}

	body, err := json.Marshal(next)
	if err != nil {
		return "", fmt.Errorf("encode resumption: %w", err)
	}

	return cleaned(string(body)), nil
}

func decodeResumption(turnID, stored string) (resumption, error) {
	var r resumption
	if stored == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(stored), &r); err != nil {
		return r, fmt.Errorf("decode resumption of turn %s: %w", turnID, err)
	}
	return r, nil
}

// fillResumed puts what was stored where the agent looks for it. A message that brought its own keeps it until then.
func fillResumed(turn *exchange.TurnRecord, stored string) error {
	r, err := decodeResumption(turn.ID, stored)
	if r.Resolution != nil {
		turn.Message.PolicyResolution = r.Resolution
	}
	if r.Trace != nil {
		turn.Message.ReceivedTrace = r.Trace
	}
	turn.Retried, turn.Written, turn.Said = r.Retried, r.Written, r.Said
	return err
}

// The apology becomes a notice that came before the answer, so that the turn may have an answer again. The number is that
// of no run: the attempt is moved past it.
const demoteReply = `UPDATE replies SET notice = $2 WHERE turn_id = $1 AND notice = 0`

// RepeatTurn lets a failed turn be accepted again; see pipeline.RetryTx.
func (t turnTx) RepeatTurn(ctx context.Context, turn exchange.TurnRecord, reason string, at time.Time) (bool, error) {
	attempt := turn.Attempt + 1
	move := pipeline.Retried.Move(turn.ID, exchange.StateAccepted, reason, at)
	move.Attempt, move.Unchanged = attempt, turn.UpdatedAt
	moved, err := t.MoveTurn(ctx, move)
	if err != nil || !moved {
		return false, err
	}

	if err := t.sql.Do(ctx, demoteReply, turn.ID, int64(attempt)); err != nil {
		return false, err
	}

	if err := t.search().changed(ctx, turn.ID); err != nil {
		return false, err
	}

	resumed, err := t.mergedResumption(ctx, turn.ID, resumption{Retried: turn.ReplyID})
	if err != nil {
		return false, err
	}
	return true, t.sql.Do(ctx, `UPDATE turns SET reply_id = '', outcome = '', resumed = $2,
		history_turns = CASE WHEN history_turns = 0 THEN 0 ELSE 1 END WHERE id = $1`, turn.ID, resumed)
}

const appendEvent = `INSERT INTO events (turn_id, seq, kind, body, at)
	SELECT $1, COALESCE(MAX(seq), 0) + 1, $2, $3, $4 FROM events WHERE turn_id = $1`

// appendTwoEvents counts once: a run of which nothing was written yet begins and ends in one statement.
const appendTwoEvents = `INSERT INTO events (turn_id, seq, kind, body, at)
	SELECT CAST($1 AS TEXT), s.seq + 1, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT) FROM (SELECT COALESCE(MAX(seq), 0) AS seq FROM events WHERE turn_id = $1) AS s
	UNION ALL SELECT CAST($1 AS TEXT), s.seq + 2, CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS BIGINT) FROM (SELECT COALESCE(MAX(seq), 0) AS seq FROM events WHERE turn_id = $1) AS s`

// appendDelta writes none to a turn that has ended: an agent on another node may speak for a moment after its run was stopped,
// and what was said in it was perhaps deleted by then. Nor to one that an operator has taken over from a run.
const appendDelta = appendEvent + ` HAVING EXISTS (SELECT 1 FROM turns
	WHERE id = $1 AND state NOT IN ('answered', 'refused', 'failed', 'silent', 'cancelled')
	AND NOT (state = '` + exchange.StateWaiting + `' AND reason = '` + exchange.WaitingOperator + `'))`

// appendEvent writes the next row of a timeline. The caller holds the turn's row, so that no other transaction
// counts at the same time.
func (t *transaction) appendEvent(ctx context.Context, turnID, kind, body string, at int64) error {
	return t.sql.Do(ctx, appendEvent, turnID, kind, body, at)
}

// holdTurn takes the turn's row until the commit. On SQLite the one writer holds everything already.
func (t *transaction) holdTurn(ctx context.Context, turnID string) error {
	if t.dialect.holdTurn == "" {
		return nil
	}
	return t.sql.Do(ctx, t.dialect.holdTurn, turnID)
}

// AppendEvents writes rows to the end of a turn's timeline, in order; deltas only as long as the turn has not ended.
// Seq and TurnID of the events are not read.
func (t *transaction) AppendEvents(ctx context.Context, turnID string, events []exchange.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := t.holdTurn(ctx, turnID); err != nil {
		return err
	}

	t.wake(ChannelTurn, turnID)
	return t.appendEvents(ctx, turnID, events)
}

// appendEvents writes two rows that are no deltas with one statement.
func (t *transaction) appendEvents(ctx context.Context, turnID string, events []exchange.Event) error {
	for len(events) > 0 {
		count := 1
		if len(events) > 1 && events[0].Kind != exchange.EventDelta && events[1].Kind != exchange.EventDelta {
			count = 2
		}

		arguments := []any{turnID}
		for _, event := range events[:count] {
			at := micros(event.At)
			if at == 0 {
				at = t.nowMicros()
			}
			arguments = append(arguments, event.Kind, cleaned(string(event.Body)), at)
		}
		query := appendEvent
		switch {
		case count == 2:
			query = appendTwoEvents
		case events[0].Kind == exchange.EventDelta:
			query = appendDelta
		}
		if err := t.sql.Do(ctx, query, arguments...); err != nil {
			return err
		}
		events = events[count:]
	}
	return nil
}

// A bare parameter behind LIMIT makes SQLite (3.53) parse and plan the statement anew at every call, because its value
// may change the plan; an expression does not. All statements of this room therefore say "LIMIT $n + 0".
const selectEvents = `SELECT seq, kind, body, at FROM events WHERE turn_id = $1 AND seq > $2 ORDER BY seq LIMIT $3 + 0`

// Events returns at most limit timeline rows of a turn with a higher seq than after, in order.
func (s turnStore) Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error) {
	var events []exchange.Event
	err := s.engine.Reader().Each(ctx, selectEvents, []any{turnID, after, int64(limit)}, func(r row) error {
		event := exchange.Event{TurnID: turnID}
		var body string
		var at int64
		if err := r.Scan(&event.Seq, &event.Kind, &body, &at); err != nil {
			return err
		}

		event.At, event.Body = instant(at), rawJSON(body)
		events = append(events, event)
		return nil
	})
	return events, err
}

func rawJSON(stored string) json.RawMessage {
	if stored == "" {
		return nil
	}
	return json.RawMessage(stored)
}

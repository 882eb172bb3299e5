package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// replyStore finds replies.
type replyStore struct {
	*shared
	posts *countCache // of LocalPosts
}

// replyTx stores and changes replies in a transaction.
type replyTx struct{ *transaction }

const insertReply = `INSERT INTO replies (id, turn_id, notice, agent, native_id, native_key, created_at, response, posts, is_open)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (turn_id, notice) DO NOTHING`

// A held message stays out of the history even when it is answered.
const pointToReply = `UPDATE turns SET reply_id = $1, outcome = $2, history_turns = CASE WHEN history_turns = 0 THEN 0 ELSE $3 END
	WHERE id = $4`

// InsertReply stores the answer of a turn, or a demand that comes before it, and makes it the turn's reply. A turn has
// at most one of each number: a second is fault.Conflict.
func (t replyTx) InsertReply(ctx context.Context, reply exchange.Reply, nativeID string) error {
	inserted, err := t.insertReply(ctx, reply, nativeID)
	if err != nil {
		return err
	}
	if !inserted {
		return fault.New(fault.Conflict, "the message has been answered already")
	}

	if err := t.search().changed(ctx, reply.TurnID); err != nil {
		return err
	}

	t.wake(ChannelTurn, reply.TurnID)
	return t.sql.Do(ctx, pointToReply, reply.ID, exchange.OutcomeOf(&reply.Response), historyTurns(reply.Response), reply.TurnID)
}

// AnswerTurn moves a turn to its end and stores its answer; see pipeline.Tx.
func (t replyTx) AnswerTurn(ctx context.Context, move pipeline.Move, reply exchange.Reply, nativeID string) (bool, error) {
	moved, err := t.turns().moveTurn(ctx, move, `reply_id = $6, outcome = $7, history_turns = CASE WHEN history_turns = 0 THEN 0 ELSE $8 END`,
		reply.ID, exchange.OutcomeOf(&reply.Response), historyTurns(reply.Response))
	if err != nil || !moved {
		return false, err
	}

	inserted, err := t.insertReply(ctx, reply, nativeID)
	if err == nil && !inserted {
		err = fault.New(fault.Conflict, "the message has been answered already")
	}
	if err != nil || !inserted {
		return inserted, err
	}
	if err := t.search().changed(ctx, reply.TurnID); err != nil {
		return false, err
	}
	return true, t.uploads().use(ctx, reply.Agent, reply.Response.Parts)
}

// A question that was given up stays so while it is one.
const amendOutcome = `UPDATE turns SET outcome = $1 WHERE id = $2 AND reply_id = $3 AND outcome <> $1
	AND NOT (outcome = 'given_up' AND $1 IN ('input', 'authorize', 'pay', 'demand'))`

// amendOutcome keeps the turn's word for its reply in step with a response that was changed.
func (t replyTx) amendOutcome(ctx context.Context, turnID, replyID string, response *normalized.Response) error {
	return t.sql.Do(ctx, amendOutcome, exchange.OutcomeOf(response), turnID, replyID)
}

// insertReply stores a reply and reports whether the turn had none with the number.
func (t replyTx) insertReply(ctx context.Context, reply exchange.Reply, nativeID string) (bool, error) {
	if err := requireStorable("native_id", nativeID); err != nil {
		return false, err
	}
	response := reply.Encoded
	if len(response) == 0 {
		var err error
		if response, err = reply.Response.AppendJSON(nil); err != nil {
			return false, fmt.Errorf("encode response: %w", err)
		}
	}

	inserted, err := t.sql.Change(ctx, insertReply, reply.ID, reply.TurnID, int64(reply.Notice), reply.Agent, nativeID,
		optionalKey(nativeID), micros(reply.CreatedAt), cleaned(string(response)), int64(reply.Posts), flag(reply.Open))
	return inserted > 0, err
}

// historyTurns returns how many entries of a history a question makes with the response.
func historyTurns(response normalized.Response) int64 {
	if response.Silent || len(response.Parts) == 0 {
		return 1
	}
	return 2
}

const replyColumns = `r.id, r.turn_id, r.notice, r.agent, r.native_id, r.created_at, r.response, r.posts, r.is_open,
	r.revision, r.edited_at, r.deleted_at, t.channel, t.route, t.message`

const selectReply = `SELECT ` + replyColumns + ` FROM replies r JOIN turns t ON t.id = r.turn_id WHERE r.id = $1`

// Reply returns a reply with its question and its native id; fault.NotFound when there is none.
func (s replyStore) Reply(ctx context.Context, id string) (exchange.Reply, string, error) {
	return s.one(ctx, selectReply, id)
}

const selectAnswer = `SELECT ` + replyColumns + ` FROM replies r JOIN turns t ON t.id = r.turn_id WHERE r.turn_id = $1 AND r.notice = 0`

// Answer returns the reply that ended a turn; fault.NotFound while there is none. Demands and acknowledgements before it do
// not count.
func (s replyStore) Answer(ctx context.Context, turnID string) (exchange.Reply, error) {
	reply, _, err := s.one(ctx, selectAnswer, turnID)
	return reply, err
}

func (s replyStore) one(ctx context.Context, query, key string) (reply exchange.Reply, nativeID string, err error) {
	found := false
	err = s.engine.Reader().Each(ctx, query, []any{key}, func(r row) (err error) {
		found = true
		reply, err = scanReply(r, &nativeID)
		return err
	})
	if err == nil && !found {
		err = notFound("reply")
	}
	return reply, nativeID, err
}

func scanReply(r row, nativeID *string, extra ...any) (exchange.Reply, error) {
	var reply exchange.Reply
	var created, open, edited, deleted int64
	var response, route, message string
	columns := []any{
		&reply.ID, &reply.TurnID, &reply.Notice, &reply.Agent, nativeID, &created, &response, &reply.Posts, &open,
		&reply.Revision, &edited, &deleted, &reply.Channel, &route, &message,
	}
	if err := r.Scan(append(columns, extra...)...); err != nil {
		return reply, err
	}

	reply.CreatedAt, reply.Route, reply.Open = instant(created), rawJSON(route), open == 1
	reply.EditedAt, reply.DeletedAt = instant(edited), instant(deleted)
	if err := decodeStored("message", reply.TurnID, &reply.Message, message); err != nil {
		return reply, err
	}

	reply.Channel = channelOf(reply.Channel, reply.Message.ReceivedVia, route)
	return reply, decodeStored("response", reply.TurnID, &reply.Response, response)
}

const openReplies = `r.agent = $1 AND r.is_open = 1 AND r.deleted_at = 0 AND r.notice >= 0`

const selectReplies = `SELECT ` + replyColumns + ` FROM replies r JOIN turns t ON t.id = r.turn_id
	WHERE ` + openReplies + ` AND r.id < $2 ORDER BY r.id DESC LIMIT $3 + 0`

// lastID is behind every id.
const lastID = "~"

// Replies lists an agent's replies that are public, newest first, at most 500: without acknowledgements and
// without what was taken back. Before is the id of the last reply of the page before.
func (s replyStore) Replies(ctx context.Context, agent, before string, limit int) ([]exchange.Reply, error) {
	if before == "" {
		before = lastID
	}
	var replies []exchange.Reply
	err := s.engine.Reader().Each(ctx, selectReplies, []any{agent, cleaned(before), pageSize(limit)}, func(r row) error {
		var nativeID string
		reply, err := scanReply(r, &nativeID)
		replies = append(replies, reply)
		return err
	})
	return replies, err
}

// CountReplies counts what Replies lists.
func (s replyStore) CountReplies(ctx context.Context, agent string) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM replies r WHERE `+openReplies, []any{agent}, &count)
	return count, err
}

// countAge is how old the number of LocalPosts may be.
const countAge = time.Minute

type countCache struct {
	lock  sync.Mutex
	count int64
	at    time.Time
}

// LocalPosts counts the replies of all agents, for usage documents. The number may be a minute old.
func (s replyStore) LocalPosts(ctx context.Context) (int64, error) {
	s.posts.lock.Lock()
	defer s.posts.lock.Unlock()

	if !s.posts.at.IsZero() && time.Since(s.posts.at) < countAge {
		return s.posts.count, nil
	}
	var count int64
	if _, err := first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM replies WHERE notice = 0 AND deleted_at = 0`, nil, &count); err != nil {
		return 0, err
	}

	s.posts.count, s.posts.at = count, time.Now()
	return count, nil
}

const reviseReply = `UPDATE replies SET response = $1, posts = $2, revision = $3, edited_at = $4, deleted_at = $5
	WHERE id = $6 AND revision = $7 AND deleted_at = 0`

// leaveHistory takes an answer out of the history; the question stays when it is there.
const leaveHistory = `UPDATE turns SET history_turns = history_turns - 1, updated_at = $1
	WHERE id = $2 AND reply_id = $3 AND history_turns > 0`

// ReviseReply stores an edited or deleted reply; see delivery.Tx.
func (t replyTx) ReviseReply(ctx context.Context, reply exchange.Reply, from int, event exchange.Event) (bool, error) {
	response, err := json.Marshal(reply.Response)
	if err != nil {
		return false, fmt.Errorf("encode response: %w", err)
	}

	changed, err := t.sql.Change(ctx, reviseReply, cleaned(string(response)), int64(reply.Posts), int64(reply.Revision),
		micros(reply.EditedAt), micros(reply.DeletedAt), reply.ID, int64(from))
	if err != nil || changed == 0 {
		return false, err
	}
	if err := t.amendOutcome(ctx, reply.TurnID, reply.ID, &reply.Response); err != nil {
		return false, err
	}
	if err := t.search().changed(ctx, reply.TurnID); err != nil {
		return false, err
	}

	// The event comes first: its number must be higher than those of the pieces that go.
	if err := t.AppendEvents(ctx, reply.TurnID, []exchange.Event{event}); err != nil || reply.DeletedAt.IsZero() {
		return err == nil, err
	}
	if err := t.sql.Do(ctx, leaveHistory, micros(reply.DeletedAt), reply.TurnID, reply.ID); err != nil {
		return false, err
	}

	if err := t.sql.Do(ctx, removeDeltas, reply.TurnID); err != nil {
		return false, err
	}
	return true, t.removeResults(ctx, reply.TurnID) // they have what the answer said
}

const removeDeltas = `DELETE FROM events WHERE turn_id = $1 AND kind = '` + exchange.EventDelta + `'`

const selectSilentTurn = `SELECT id FROM turns WHERE id = $1 AND reply_id = '' AND (state IN ('` +
	exchange.StateAccepted + `', '` + exchange.StateRunning + `') OR state = '` + exchange.StateWaiting + `' AND reason LIKE '` + exchange.WaitingTool + ` %')`

// InsertAck stores an acknowledgement; see pipeline.AckTx. The turn is held, so that its answer comes before or after.
func (t replyTx) InsertAck(ctx context.Context, reply exchange.Reply, nativeID string) (bool, error) {
	if err := t.holdTurn(ctx, reply.TurnID); err != nil {
		return false, err
	}
	var id string
	silent, err := first(ctx, t.sql, selectSilentTurn, []any{reply.TurnID}, &id)
	if err != nil || !silent {
		return false, err
	}

	reply.Notice = exchange.NoticeAck
	inserted, err := t.insertReply(ctx, reply, nativeID)
	if err != nil || !inserted {
		return false, err
	}

	return true, t.AppendEvents(ctx, reply.TurnID, []exchange.Event{{Kind: exchange.EventAcknowledged, At: reply.CreatedAt}})
}

// ackOvertaken is the reason of a delivery that is no longer needed.
const ackOvertaken = "something newer about the message came first"

// A delivery on the wire is cancelled too: when the attempt succeeds it is delivered all the same, and when it fails
// there is no other one.
const cancelAck = `UPDATE deliveries SET state = '` + delivery.StateCancelled + `', reason = $1, updated_at = $2
	WHERE turn_id = $3 AND state IN ('` + delivery.StatePending + `', '` + delivery.StateSending + `', '` + delivery.StateRetry + `')
	AND reply_id IN (SELECT id FROM replies WHERE turn_id = $3 AND notice = $4) RETURNING id, address`

// CancelAck takes the deliveries of an acknowledgement back; see pipeline.AckTx. Rows are taken in the order of
// delivery's own transactions: the delivery, the turn, the job.
func (t replyTx) CancelAck(ctx context.Context, turnID string, at time.Time) error {
	cancelled := map[string]string{} // id → address
	err := t.sql.Each(ctx, cancelAck, []any{ackOvertaken, micros(at), turnID, int64(exchange.NoticeAck)}, func(r row) error {
		var id, address string
		err := r.Scan(&id, &address)
		cancelled[id] = address
		return err
	})
	if err != nil {
		return err
	}

	for _, address := range cancelled {
		body, err := json.Marshal(map[string]string{"destination": address, "reason": ackOvertaken})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}

		event := exchange.Event{Kind: exchange.EventDeliveryCanceled, Body: body, At: at}
		if err := t.AppendEvents(ctx, turnID, []exchange.Event{event}); err != nil {
			return err
		}
	}
	_, err = t.jobs().removeWaiting(ctx, slices.Collect(maps.Keys(cancelled))...)
	return err
}

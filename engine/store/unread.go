package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// readStore keeps how far operators have read.
type readStore struct{ *shared }

const (
	// unreadFor is how long a message counts as unread that an operator did not look at.
	unreadFor = 30 * 24 * time.Hour
	// maxReadMarks is how many conversations of one operator have a mark; what is older than the oldest of them counts as read.
	maxReadMarks = 5000
	// maxUnreadLooked is how many of the newest messages are looked at for unread conversations.
	maxUnreadLooked = 1000
)

// MaxUnread is how far unread conversations are counted.
const MaxUnread = 99

// ofAll is the thread_key of the mark of all conversations.
const ofAll = ""

func ownerKeyOf(owner exchange.SessionOwner) string { return hashKey(owner.TokenID, owner.Subject) }

// readUntil returns the id up to which everything counts as read for an owner at the instant.
func readUntil(ctx context.Context, from querier, owner string, at time.Time) (string, error) {
	var id string
	_, err := first(ctx, from, `SELECT read_id FROM read_marks WHERE owner_key = $1 AND thread_key = $2`, []any{owner, ofAll}, &id)
	return max(id, firstID(at.Add(-unreadFor))), err
}

// isUnread reports whether the mark of the turn's conversation does not reach it.
func (s readStore) isUnread(ctx context.Context, owner string, turn exchange.TurnRecord) (bool, error) {
	until, err := readUntil(ctx, s.engine.Reader(), owner, s.now())
	if err != nil || turn.ID <= until {
		return false, err
	}
	var mark string
	_, err = first(ctx, s.engine.Reader(), `SELECT read_id FROM read_marks WHERE owner_key = $1 AND thread_key = $2`,
		[]any{owner, hashKey(turn.Agent, turn.ThreadID)}, &mark)
	return turn.ID > mark, err
}

const selectUnread = `SELECT MAX(t.id) FROM (SELECT id, thread_key FROM turns WHERE id > $1 ORDER BY id DESC LIMIT $2 + 0) AS t
	LEFT JOIN read_marks m ON m.owner_key = $3 AND m.thread_key = t.thread_key
	WHERE m.read_id IS NULL OR m.read_id < t.id GROUP BY t.thread_key ORDER BY 1 DESC LIMIT $4 + 0`

const selectBeyondLooked = `SELECT id FROM turns WHERE id > $1 ORDER BY id DESC LIMIT 1 OFFSET $2 + 0`

// unread returns the newest messages of conversations that the owner did not read, newest first, at most MaxUnread+1, and their count. It looks
// at the newest messages alone, so that it costs the same on every server.
func (s readStore) unread(ctx context.Context, owner, until string) (ids []string, count exchange.UnreadCount, err error) {
	ids = mustColumn(ctx, s.engine.Reader(), &err, selectUnread, until, int64(maxUnreadLooked), owner, int64(MaxUnread+1))
	if err != nil {
		return nil, count, err
	}

	var beyond string
	count = exchange.UnreadCount{Conversations: min(len(ids), MaxUnread), More: len(ids) > MaxUnread}
	count.Older, err = first(ctx, s.engine.Reader(), selectBeyondLooked, []any{until, int64(maxUnreadLooked)}, &beyond)
	return ids, count, err
}

// CountUnread returns how many conversations have a message that the owner did not read, at most MaxUnread. There may be more of them where
// there are more than that, or messages that were not looked at.
func (s readStore) CountUnread(ctx context.Context, owner exchange.SessionOwner) (count exchange.UnreadCount, err error) {
	key := ownerKeyOf(owner)
	until, err := readUntil(ctx, s.engine.Reader(), key, s.now())
	if err != nil {
		return count, err
	}
	_, count, err = s.unread(ctx, key, until)
	return count, err
}

const (
	putReadMark = `INSERT INTO read_marks (owner_key, thread_key, read_id) VALUES ($1, $2, $3)
		ON CONFLICT (owner_key, thread_key) DO UPDATE SET read_id = excluded.read_id WHERE read_marks.read_id < excluded.read_id`
	removeReadMarks = `DELETE FROM read_marks WHERE owner_key = $1 AND thread_key <> '' AND read_id <= $2`
	selectExcess    = `SELECT read_id FROM read_marks WHERE owner_key = $1 AND thread_key <> '' ORDER BY read_id DESC LIMIT 1 OFFSET $2 + 0`

	sweepReadMarks = `DELETE FROM read_marks WHERE (owner_key, thread_key) IN
		(SELECT owner_key, thread_key FROM read_marks WHERE read_id < $1 ORDER BY read_id LIMIT $2 + 0)`

	// The name of a conversation may be that of a person: its hash stays no longer than a message.
	removeMarksOfThread = `DELETE FROM read_marks WHERE thread_key = (SELECT thread_key FROM turns WHERE id = $1) AND NOT EXISTS
		(SELECT 1 FROM turns t WHERE t.thread_key = read_marks.thread_key AND t.id <> $1)`
)

// MarkRead keeps that the owner has read a conversation up to a turn. It writes only what is not known.
func (s readStore) MarkRead(ctx context.Context, owner exchange.SessionOwner, turn exchange.TurnRecord) error {
	key := ownerKeyOf(owner)
	if unread, err := s.isUnread(ctx, key, turn); err != nil || !unread {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.sql.Do(ctx, putReadMark, key, hashKey(turn.Agent, turn.ThreadID), turn.ID); err != nil {
			return err
		}
		var excess string
		found, err := first(ctx, tx.sql, selectExcess, []any{key, int64(maxReadMarks)}, &excess)
		if err != nil || !found {
			return err
		}
		return tx.markAllRead(ctx, key, excess)
	})
}

// NewestTurn returns the id of the newest message; empty = there is none.
func (s readStore) NewestTurn(ctx context.Context) (id string, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT id FROM turns ORDER BY id DESC LIMIT 1`, nil, &id)
	return id, err
}

// MarkAllRead keeps that the owner has read every conversation up to a turn; empty = the newest one. An id of the future is that of the
// newest turn. fault.Malformed for what is no id.
func (s readStore) MarkAllRead(ctx context.Context, owner exchange.SessionOwner, until string) error {
	newest, err := s.NewestTurn(ctx)
	if err != nil {
		return err
	}
	if until == "" {
		until = newest
	} else if id, err := uuid.Parse(until); err != nil || id.String() != until {
		return fault.InField("until", "must be the id of a message")
	}
	if until = min(until, newest); until == "" {
		return nil
	}

	return s.InTx(ctx, func(tx *Tx) error { return tx.markAllRead(ctx, ownerKeyOf(owner), until) })
}

// readTx keeps it in a transaction.
type readTx struct{ *transaction }

func (t readTx) markAllRead(ctx context.Context, owner, until string) error {
	if err := t.sql.Do(ctx, putReadMark, owner, ofAll, until); err != nil {
		return err
	}
	return t.sql.Do(ctx, removeReadMarks, owner, until)
}

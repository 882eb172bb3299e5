package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

// quotaStore counts what senders use: the room of unanswered messages, and counters that nodes share.
type quotaStore struct{ *shared }

// quotaTx reserves and releases room in a transaction.
type quotaTx struct{ *transaction }

const (
	selectRoom = `SELECT account, messages, bytes FROM unanswered_sums WHERE account = $1 OR account = ''`

	// A row is locked until the commit, so every transaction takes that of its account before the one of all.
	takeRoom = `INSERT INTO unanswered_sums (account, messages, bytes) VALUES ($1, 1, $2)
		ON CONFLICT (account) DO UPDATE SET messages = unanswered_sums.messages + 1, bytes = unanswered_sums.bytes + excluded.bytes
		WHERE unanswered_sums.messages < $3 AND unanswered_sums.bytes + excluded.bytes <= $4 RETURNING messages`
	giveRoom = `UPDATE unanswered_sums SET messages = messages - 1, bytes = bytes - $2 WHERE account = $1`

	insertUnanswered = `INSERT INTO unanswered (turn_id, account, bytes, ends_at) VALUES ($1, $2, $3, $4)`
	deleteUnanswered = `DELETE FROM unanswered WHERE turn_id = $1 RETURNING account, bytes`
	selectEnded      = `SELECT turn_id, ends_at FROM unanswered WHERE ends_at <= $1 AND (ends_at, turn_id) > ($3, $4) ORDER BY ends_at, turn_id LIMIT $2 + 0`
)

// HasRoom reports whether an unanswered message fits into the quotas; see pipeline.UnansweredTx.
func (t quotaTx) HasRoom(ctx context.Context, u pipeline.Unanswered) (bool, error) {
	fits := u.Fits(pipeline.Usage{}, u.Account == "") && u.Fits(pipeline.Usage{}, true)
	err := t.sql.Each(ctx, selectRoom, []any{u.Account}, func(r row) error {
		var account string
		var used pipeline.Usage
		err := r.Scan(&account, &used.Messages, &used.Bytes)
		fits = fits && u.Fits(used, account == "")
		return err
	})
	return fits, err
}

// KeepUnanswered counts an unanswered message; see pipeline.UnansweredTx.
func (t quotaTx) KeepUnanswered(ctx context.Context, u pipeline.Unanswered) (bool, error) {
	accounts := []string{u.Account, ""}
	if u.Account == "" {
		accounts = accounts[1:]
	}

	for _, account := range accounts {
		most := u.Quota
		if account == "" {
			most = u.All
		}

		var messages int64
		fits, err := first(ctx, t.sql, takeRoom, []any{account, u.Bytes, most.Messages, most.Bytes}, &messages)
		if err != nil || !fits || u.Bytes > most.Bytes {
			return false, err
		}
	}

	return true, t.sql.Do(ctx, insertUnanswered, u.TurnID, u.Account, u.Bytes, micros(u.Ends))
}

// counted is the account of a message whose room was released and whose content is not gone yet.
const counted = "-"

// leftHold frees the room of a message that the operator decided about, or that was taken back. Content that no one
// answered goes at its time all the same.
func (t quotaTx) leftHold(ctx context.Context, turnID, to string) error {
	var ends int64
	found, err := first(ctx, t.sql, `SELECT ends_at FROM unanswered WHERE turn_id = $1`, []any{turnID}, &ends)
	if err != nil || !found {
		return err
	}
	if err := t.free(ctx, turnID); err != nil || to == exchange.StateAccepted {
		return err
	}

	return t.sql.Do(ctx, insertUnanswered, turnID, counted, int64(0), ends)
}

// Dropped reports whether a message left hold without an answer and keeps its content until an instant at least; see pipeline.UnansweredTx.
func (t quotaTx) Dropped(ctx context.Context, turnID string, until time.Time) (bool, error) {
	var ends int64
	return first(ctx, t.sql, `SELECT ends_at FROM unanswered WHERE turn_id = $1 AND account = '`+counted+`' AND ends_at > $2`, []any{turnID, micros(until)}, &ends)
}

// free removes the count of a message that the agent may answer now, or whose content is gone, and releases its room.
func (t quotaTx) free(ctx context.Context, turnID string) error {
	var account string
	var bytes int64
	found, err := first(ctx, t.sql, deleteUnanswered, []any{turnID}, &account, &bytes)
	if err != nil || !found || account == counted {
		return err
	}

	if account != "" {
		if err := t.sql.Do(ctx, giveRoom, account, bytes); err != nil {
			return err
		}
		if err := t.sql.Do(ctx, `DELETE FROM unanswered_sums WHERE account = $1 AND messages <= 0`, account); err != nil {
			return err
		}
	}

	return t.sql.Do(ctx, giveRoom, "", bytes)
}

// Unanswered returns what unanswered messages use of the quotas, all together.
func (s quotaStore) Unanswered(ctx context.Context) (used pipeline.Usage, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT messages, bytes FROM unanswered_sums WHERE account = ''`, nil, &used.Messages, &used.Bytes)
	return used, err
}

// fillExpiry adds when messages that are held leave hold by themselves.
func (s quotaStore) fillExpiry(ctx context.Context, turns []exchange.TurnRecord) error {
	return s.fillEnds(ctx, turns, exchange.StateHeld)
}

// fillEnds adds when the content of messages in a state is erased because no one answered them.
func (s quotaStore) fillEnds(ctx context.Context, turns []exchange.TurnRecord, state string) error {
	held, arguments := map[string]*exchange.TurnRecord{}, []any(nil)
	for i := range turns {
		if turns[i].State == state {
			held[turns[i].ID], arguments = &turns[i], append(arguments, turns[i].ID)
		}
	}
	if len(held) == 0 {
		return nil
	}

	query := `SELECT turn_id, ends_at FROM unanswered WHERE turn_id IN (` + placeholders(1, len(arguments)) + `)`
	return s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var id string
		var ends int64
		err := r.Scan(&id, &ends)
		if turn := held[id]; turn != nil && err == nil {
			at := instant(ends)
			turn.ExpiresAt = &at
		}
		return err
	})
}

// maxExpired bounds the messages whose content one transaction erases.
const maxExpired = 50

// Code and reason of messages that no one let in.
const (
	auditHeldExpired  = "held:expired"
	reasonHeldExpired = "it was held until its time was over, and the operator did not let it in"
)

// sweepUnanswered erases the content of unanswered messages whose time is over. The rows stay, with their reasons; those
// that were held are refused. A message that cannot be erased does not keep the others.
func (s quotaStore) sweepUnanswered(ctx context.Context, now time.Time) error {
	var failures []error
	after, last := int64(0), ""
	for range maxBatches {
		var ended []string
		err := s.engine.Reader().Each(ctx, selectEnded, []any{micros(now), int64(maxExpired), after, last}, func(r row) error {
			err := r.Scan(&last, &after)
			ended = append(ended, last)
			return err
		})
		if err != nil || len(ended) == 0 {
			return errors.Join(append(failures, err)...)
		}

		err = s.expireAll(ctx, ended, now)
		if fault.Is(err, fault.Unavailable) {
			return errors.Join(append(failures, err)...)
		}
		if err != nil {
			for _, id := range ended {
				failures = append(failures, s.expireAll(ctx, []string{id}, now))
			}
		}
	}
	return errors.Join(failures...)
}

func (s quotaStore) expireAll(ctx context.Context, ids []string, now time.Time) error {
	return s.inBackground(ctx, func(tx *Tx) error {
		for _, id := range ids {
			if err := expireUnanswered(ctx, tx, id, now); err != nil {
				return fmt.Errorf("expire message %s: %w", id, err)
			}
		}
		return nil
	})
}

// expireUnanswered takes the row of the turn before that of its room, as those do that let a message in.
func expireUnanswered(ctx context.Context, tx *Tx, turnID string, now time.Time) error {
	moved, err := tx.MoveTurn(ctx, pipeline.HeldExpired.Move(turnID, exchange.StateRefused, reasonHeldExpired, now))
	if err != nil {
		return err
	}

	var agent, principal, state string
	found, err := first(ctx, tx.sql, `SELECT agent, principal, state FROM turns WHERE id = $1`, []any{turnID}, &agent, &principal, &state)
	if err != nil {
		return err
	}

	if moved {
		record := exchange.AuditRecord{Code: auditHeldExpired, At: now, TurnID: turnID, Agent: agent, Principal: principal, Detail: reasonHeldExpired}
		if err := tx.Audit(ctx, record); err != nil {
			return err
		}
	}
	if found && exchange.Terminal(state) && state != exchange.StateAnswered {
		if err := tx.erase(ctx, turnID, true); err != nil {
			return err
		}
	}

	return tx.free(ctx, turnID)
}

// portions are the sizes of the statements that add to counters: few texts, so that they stay prepared.
var portions = []int{256, 32, 4, 1}

// AddCounts adds to counters in one transaction and returns their sums on all nodes. Rows are taken in the order of their
// keys, so that nodes never wait for each other in a circle. The keys must differ.
func (s quotaStore) AddCounts(ctx context.Context, counts []exchange.Count) (sums []exchange.Count, err error) {
	sorted := slices.Clone(counts)
	slices.SortFunc(sorted, func(a, b exchange.Count) int { return cmp.Compare(a.Key, b.Key) })
	err = s.InTx(ctx, func(tx *Tx) error {
		sums = sums[:0]
		rest := sorted
		for _, size := range portions {
			for len(rest) >= size {
				added, err := addCounts(ctx, tx.sql, rest[:size])
				if err != nil {
					return err
				}
				sums, rest = append(sums, added...), rest[size:]
			}
		}
		return nil
	})
	return sums, err
}

func addCounts(ctx context.Context, tx querier, counts []exchange.Count) ([]exchange.Count, error) {
	values, arguments := make([]string, len(counts)), make([]any, 0, 3*len(counts))
	for i, c := range counts {
		if err := requireStorable("key", c.Key); err != nil {
			return nil, err
		}
		n := len(arguments)
		values[i] = "($" + strconv.Itoa(n+1) + ", CAST($" + strconv.Itoa(n+2) + " AS BIGINT), CAST($" + strconv.Itoa(n+3) + " AS BIGINT))"
		arguments = append(arguments, c.Key, c.Amount, micros(c.Ends))
	}

	query := `INSERT INTO counters (counter_key, amount, ends_at) VALUES ` + strings.Join(values, ", ") + `
		ON CONFLICT (counter_key) DO UPDATE SET amount = counters.amount + excluded.amount
		RETURNING counter_key, amount, ends_at`
	var sums []exchange.Count
	err := tx.Each(ctx, query, arguments, func(r row) error {
		count, err := scanCount(r)
		sums = append(sums, count)
		return err
	})
	return sums, err
}

// Counts returns the sums of counters; those that are not there are left out.
func (s quotaStore) Counts(ctx context.Context, keys []string) ([]exchange.Count, error) {
	arguments := make([]any, len(keys))
	for i, key := range keys {
		arguments[i] = cleaned(key)
	}

	if len(keys) == 0 {
		return nil, nil
	}

	var sums []exchange.Count
	query := `SELECT counter_key, amount, ends_at FROM counters WHERE counter_key IN (` + placeholders(1, len(keys)) + `)`
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		count, err := scanCount(r)
		sums = append(sums, count)
		return err
	})
	return sums, err
}

func scanCount(r row) (exchange.Count, error) {
	var c exchange.Count
	var ends int64
	err := r.Scan(&c.Key, &c.Amount, &ends)
	c.Ends = instant(ends)
	return c, err
}

const sweepCounters = `DELETE FROM counters WHERE counter_key IN (SELECT counter_key FROM counters
	WHERE ends_at <= $1 ORDER BY ends_at LIMIT $2 + 0)`

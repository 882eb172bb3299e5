package store

import (
	"context"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// uploadStore keeps which files the programs of an agent handed in, and how much of that no answer has yet.
type uploadStore struct{ *shared }

// uploadTx marks files as used in a transaction.
type uploadTx struct{ *transaction }

const (
	// The row of the sum is locked until the commit, so that uploads of one agent cannot pass the bound together.
	takeUploadBytes = `INSERT INTO agent_upload_sums (agent, bytes) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE
		SET bytes = agent_upload_sums.bytes + excluded.bytes WHERE agent_upload_sums.bytes + excluded.bytes <= $3 RETURNING bytes`
	giveUploadBytes = `UPDATE agent_upload_sums SET bytes = bytes - $2 WHERE agent = $1`

	insertUpload = `INSERT INTO agent_uploads (id, agent, digest, size, used, touched_at) VALUES ($1, $2, '', $3, 0, $4)`
	finishUpload = `UPDATE agent_uploads SET digest = $1, touched_at = $2 WHERE id = $3`
	deleteUpload = `DELETE FROM agent_uploads WHERE id = $1 RETURNING agent, size, used`
	hasUpload    = `SELECT size FROM agent_uploads WHERE agent = $1 AND digest = $2 LIMIT 1`

	useUploads  = `UPDATE agent_uploads SET used = 1 WHERE agent = $1 AND digest = $2 AND used = 0 RETURNING size`
	keepUploads = `UPDATE agent_uploads SET touched_at = $1 WHERE agent = $2 AND digest = $3`

	selectOldUploads = `SELECT id FROM agent_uploads WHERE touched_at <= $1 ORDER BY touched_at, id LIMIT $2 + 0`
)

// uploadAge is how long a file can be named in answers after it was handed in, or was last part of one. It is not longer than contents
// stay to which nothing refers.
const uploadAge = 24 * time.Hour

// ReserveUpload counts a file that is about to come in, and reports whether it fits into the bytes that the agent may have without an
// answer that has them.
func (s uploadStore) ReserveUpload(ctx context.Context, upload exchange.Upload, most int64) (fits bool, err error) {
	agent := strings.ToLower(upload.Agent)
	err = s.InTx(ctx, func(tx *Tx) error {
		var sum int64
		if fits, err = first(ctx, tx.sql, takeUploadBytes, []any{agent, upload.Size, most}, &sum); err != nil || !fits {
			return err
		}
		if fits = sum <= most; !fits { // the first row of an agent is inserted whatever its size is
			return tx.sql.Do(ctx, giveUploadBytes, agent, upload.Size)
		}
		return tx.sql.Do(ctx, insertUpload, upload.ID, agent, upload.Size, s.nowMicros())
	})
	return fits && err == nil, err
}

// FinishUpload notes that a file is there, under its digest.
func (s uploadStore) FinishUpload(ctx context.Context, id, digest string) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.sql.Do(ctx, finishUpload, cleaned(digest), s.nowMicros(), id) })
}

// DropUpload forgets a file that did not come in.
func (s uploadStore) DropUpload(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.uploads().drop(ctx, id) })
}

// Uploaded returns the size of a file that was handed in for an agent.
func (s uploadStore) Uploaded(ctx context.Context, agent, digest string) (size int64, found bool, err error) {
	if digest == "" {
		return 0, false, nil
	}
	found, err = first(ctx, s.engine.Reader(), hasUpload, []any{strings.ToLower(agent), cleaned(digest)}, &size)
	return size, found, err
}

func (t uploadTx) drop(ctx context.Context, id string) error {
	var agent string
	var size int64
	var used int64
	found, err := first(ctx, t.sql, deleteUpload, []any{id}, &agent, &size, &used)
	if err != nil || !found || used > 0 {
		return err
	}
	return t.sql.Do(ctx, giveUploadBytes, agent, size)
}

// use notes that an answer has files: they count no more as bytes that no answer has.
func (t uploadTx) use(ctx context.Context, agent string, parts []normalized.Part) error {
	agent = strings.ToLower(agent)
	for _, digest := range filesOf(parts) {
		var freed int64
		err := t.sql.Each(ctx, useUploads, []any{agent, digest}, func(r row) error {
			var size int64
			err := r.Scan(&size)
			freed += size
			return err
		})
		if err != nil {
			return err
		}

		if freed > 0 {
			if err := t.sql.Do(ctx, giveUploadBytes, agent, freed); err != nil {
				return err
			}
		}
		if err := t.sql.Do(ctx, keepUploads, t.nowMicros(), agent, digest); err != nil {
			return err
		}
	}
	return nil
}

// sweepUploads forgets files that were handed in before the instant and that no answer had since.
func (s uploadStore) sweepUploads(ctx context.Context, before time.Time) error {
	for range maxBatches {
		var ids []string
		err := s.inBackground(ctx, func(tx *Tx) error {
			var err error
			ids, err = column[string](ctx, tx.sql, selectOldUploads, []any{micros(before), int64(maxSwept)})
			if err != nil {
				return err
			}

			for _, id := range ids {
				if err := tx.uploads().drop(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(ids) < maxSwept {
			return err
		}
	}
	return nil
}

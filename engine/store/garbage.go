package store

import (
	"context"
	"strings"
	"time"

	"inbox/normalized"
)

// Contents outside of the database are listed in blob_garbage by the transaction that erases what referred to them, and
// deleted later, when nothing else refers to them: the same bytes may be a file in somebody else's message.
const (
	deleteOriginal = `DELETE FROM originals WHERE digest = $1 RETURNING encoding`
	putGarbage     = `INSERT INTO blob_garbage (digest, created_at) VALUES ($1, $2) ON CONFLICT (digest) DO UPDATE SET created_at = excluded.created_at`
	selectGarbage  = `SELECT digest, created_at FROM blob_garbage WHERE digest > $1 ORDER BY digest LIMIT $2 + 0`
	isOriginal     = `SELECT 1 FROM originals WHERE digest = $1 AND encoding = 'blob'`
)

// blobColumns are where parts with content stand, and the adapters' own notes.
var blobColumns = []string{
	`turns WHERE message`, `replies WHERE response`, `events WHERE body`, `dispatches WHERE call`, `dispatches WHERE response`,
	`demands WHERE notes`, `tool_requests WHERE request`, `tool_requests WHERE result`,
	`session_messages WHERE message`, `bridge_items WHERE item`, `documents WHERE value`,
}

// discard notes contents that may not be needed any more.
func (t *Tx) discard(ctx context.Context, digests ...string) error {
	for _, digest := range digests {
		if err := t.do(ctx, putGarbage, digest, nowMicros()); err != nil {
			return err
		}
	}
	return nil
}

// filesOf returns the contents that the parts of a message refer to.
func filesOf(parts []normalized.Part) (digests []string) {
	for _, part := range parts {
		if part.BytesRef != nil && part.BytesRef.Digest != "" {
			digests = append(digests, part.BytesRef.Digest)
		}
	}
	return digests
}

// Garbage is a content that may not be needed any more, and when that was last said.
type Garbage struct {
	Digest string
	since  int64
}

// Garbage returns contents that may not be needed any more, in order after the given one.
func (s *Store) Garbage(ctx context.Context, after string, limit int) (contents []Garbage, err error) {
	err = s.engine.reader().each(ctx, selectGarbage, []any{cleaned(after), int64(limit)}, func(r row) error {
		var content Garbage
		err := r.Scan(&content.Digest, &content.since)
		contents = append(contents, content)
		return err
	})
	return contents, err
}

// BlobNeeded reports whether anything refers to a content. It reads whole tables: ask rarely.
func (s *Store) BlobNeeded(ctx context.Context, digest string) (bool, error) {
	needed := false
	ask := func(query, argument string) error {
		return s.engine.reader().each(ctx, query, []any{argument}, func(r row) error {
			var one int64
			needed = true
			return r.Scan(&one)
		})
	}
	if err := ask(isOriginal, cleaned(digest)); err != nil || needed {
		return needed, err
	}
	pattern := `%"digest":"` + strings.Map(hexOnly, digest) + `"%`
	for _, column := range blobColumns {
		if column == `documents WHERE value` {
			pattern = "%" + strings.Map(hexOnly, digest) + "%"
		}
		if err := ask(`SELECT 1 FROM `+column+` LIKE $1 LIMIT 1`, pattern); err != nil || needed {
			return needed, err
		}
	}
	return false, nil
}

func hexOnly(r rune) rune {
	if strings.ContainsRune("0123456789abcdef", r) {
		return r
	}
	return -1
}

// DropGarbage forgets a content that is gone, or needed again. What was noted once more since it was read stays: another
// message with the same file may have been erased meanwhile.
func (s *Store) DropGarbage(ctx context.Context, content Garbage) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.do(ctx, `DELETE FROM blob_garbage WHERE digest = $1 AND created_at = $2`, cleaned(content.Digest), content.since)
	})
}

// Blobs is where contents lie.
type Blobs interface {
	// DeleteIdle removes a content that nobody has put since, and reports whether it is gone.
	DeleteIdle(ctx context.Context, digest string, since time.Time) (gone bool, err error)
}

// garbagePage is how many contents are looked at in one step.
const garbagePage = 100

// SweepBlobs deletes the contents that nothing refers to any more and that nobody has put for the given time, and says how
// many. After a crash it does again what was not finished.
func (s *Store) SweepBlobs(ctx context.Context, blobs Blobs, idle time.Duration) (deleted int, err error) {
	for after := ""; ; {
		contents, err := s.Garbage(ctx, after, garbagePage)
		if err != nil {
			return deleted, err
		}
		for _, content := range contents {
			digest := content.Digest
			after = digest
			needed, err := s.BlobNeeded(ctx, digest)
			if err != nil {
				return deleted, err
			}
			gone := false
			if !needed {
				if gone, err = blobs.DeleteIdle(ctx, digest, time.Now().Add(-idle)); err != nil {
					return deleted, err
				}
			}
			if !needed && !gone {
				continue
			}
			if err := s.DropGarbage(ctx, content); err != nil {
				return deleted, err
			}
			if gone {
				deleted++
			}
		}
		if len(contents) < garbagePage {
			return deleted, nil
		}
	}
}

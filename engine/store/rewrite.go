package store

import (
	"context"
	"errors"
	"os"
)

// Documents that end keep their end.
const (
	selectForRewrite = `SELECT namespace, key, encoding, value FROM documents WHERE namespace = $1 ORDER BY key`
	rewriteDocument  = `UPDATE documents SET encoding = $1, value = $2 WHERE namespace = $3 AND key = $4 AND encoding = $5 AND value = $6`
)

// RewriteDocuments replaces the documents of small namespaces by what change makes of them, in one transaction; what change
// gives back as it was stays. It says how many were replaced. A document that somebody else replaces at the same time is
// left to them. Afterwards the old texts are not in the file of a SQLite database any more, unless it is large, which the log
// tells; in PostgreSQL they go with the next vacuum.
func (s *Store) RewriteDocuments(
	ctx context.Context, namespaces []string, change func(namespace, key string, value []byte) []byte,
) (replaced int, err error) {
	work := func(tx *Tx) error {
		replaced = 0
		for _, namespace := range namespaces {
			rows, err := tx.rewritten(ctx, namespace, change)
			if err != nil {
				return err
			}
			for _, row := range rows {
				changed, err := tx.change(ctx, rewriteDocument, row...)
				if err != nil {
					return err
				}
				replaced += int(changed)
			}
		}
		return nil
	}
	if err := s.InTx(ctx, work); err != nil || replaced == 0 {
		return 0, err
	}
	if file, isFile := s.engine.(*sqliteEngine); isFile {
		file.forgetOld(ctx)
	}
	return replaced, nil
}

// maxForgotten bounds the file that is written anew to be rid of old texts, which takes as long as copying it.
const maxForgotten = 256 << 20

// forgetOld writes the file anew, because what was replaced stands on in free places of it, and empties the log.
func (e *sqliteEngine) forgetOld(ctx context.Context) {
	info, err := os.Stat(e.path)
	if err == nil && info.Size() > maxForgotten {
		err = errors.New("the file is large")
	}
	if err == nil {
		err = e.writer.between(ctx, func(s *writerSession) error {
			return errors.Join(s.execute("VACUUM"), s.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
		})
	}
	if err != nil {
		e.logger.Warn("old texts of what was replaced may stand in free places of the database file until somebody runs: sqlite3 "+
			e.path+" VACUUM", "error", err)
	}
}

// rewritten returns the arguments of rewriteDocument for the documents that change.
func (t *Tx) rewritten(ctx context.Context, namespace string, change func(namespace, key string, value []byte) []byte) (rows [][]any, err error) {
	err = t.each(ctx, selectForRewrite, []any{namespace}, func(r row) error {
		var namespace, key, encoding, text string
		if err := r.Scan(&namespace, &key, &encoding, &text); err != nil {
			return err
		}
		value, err := decodeBody(encoding, text)
		if err != nil {
			return err
		}
		if newEncoding, newText := encodeBody(change(namespace, key, value)); newEncoding != encoding || newText != text {
			rows = append(rows, []any{newEncoding, newText, namespace, key, encoding, text})
		}
		return nil
	})
	return rows, err
}

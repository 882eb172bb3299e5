package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
)

// documentStore changes the documents of adapters all at once; State is the adapters' own view.
type documentStore struct{ *database }

// documentTx changes documents in a transaction.
type documentTx struct{ *transaction }

// maxDocumentKey bounds a document's key in bytes, so that every index entry fits.
const maxDocumentKey = 2048

// State keeps the adapters' private documents: durable, shared by all nodes, each with an optional end of life.
// Namespaces belong to one adapter each.
type State struct{ db *database }

// liveDocument keeps documents that have not ended at $1.
const liveDocument = `(expires_at = 0 OR expires_at > $1)`

const selectDocument = `SELECT encoding, value FROM documents WHERE ` + liveDocument + ` AND namespace = $2 AND key = $3`

// Get returns a document.
func (s *State) Get(ctx context.Context, namespace, key string) ([]byte, bool, error) {
	return getDocument(ctx, s.db.engine.reader(), namespace, key)
}

func getDocument(ctx context.Context, from querier, namespace, key string) (value []byte, found bool, err error) {
	if !storable(namespace) || !storable(key) {
		return nil, false, nil
	}
	var encoding, text string
	found, err = first(ctx, from, selectDocument, []any{nowMicros(), namespace, key}, &encoding, &text)
	if err != nil || !found {
		return nil, false, err
	}

	value, err = decodeBody(encoding, text)
	return value, err == nil, err
}

const putDocument = `INSERT INTO documents (namespace, key, encoding, value, expires_at) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (namespace, key) DO UPDATE SET encoding = excluded.encoding, value = excluded.value,
	expires_at = excluded.expires_at`

// Put writes a document, over an older one if there is one. A zero expires means never.
func (s *State) Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error {
	if err := checkDocumentKey(namespace, key); err != nil {
		return err
	}
	return s.db.InTx(ctx, func(tx *Tx) error { return tx.PutDocument(ctx, namespace, key, value, expires) })
}

// PutDocument writes a document, over an older one if there is one. A zero expires means never.
func (t documentTx) PutDocument(ctx context.Context, namespace, key string, value []byte, expires time.Time) error {
	if err := checkDocumentKey(namespace, key); err != nil {
		return err
	}
	encoding, text := encodeBody(value)
	return t.do(ctx, putDocument, namespace, key, encoding, text, micros(expires))
}

const putDocumentIfAbsent = putDocument + ` WHERE documents.expires_at > 0 AND documents.expires_at <= $6`

// PutIfAbsent writes a document unless a live one is there; it returns the one that is there afterwards and whether it
// is the caller's.
func (s *State) PutIfAbsent(
	ctx context.Context, namespace, key string, value []byte, expires time.Time,
) (current []byte, inserted bool, err error) {
	err = s.db.InTx(ctx, func(tx *Tx) (err error) {
		current, inserted, err = tx.PutDocumentIfAbsent(ctx, namespace, key, value, expires)
		return err
	})
	return current, inserted, err
}

// PutDocumentIfAbsent is State.PutIfAbsent as part of a transaction.
func (t documentTx) PutDocumentIfAbsent(
	ctx context.Context, namespace, key string, value []byte, expires time.Time,
) (current []byte, inserted bool, err error) {
	if err := checkDocumentKey(namespace, key); err != nil {
		return nil, false, err
	}
	encoding, text := encodeBody(value)
	changed, err := t.change(ctx, putDocumentIfAbsent, namespace, key, encoding, text, micros(expires), nowMicros())
	if err != nil || changed > 0 {
		return value, err == nil, err
	}
	current, _, err = getDocument(ctx, t, namespace, key)
	return current, false, err
}

// Swap writes a document in place of another one; it reports whether that one was there.
func (s *State) Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (swapped bool, err error) {
	if err := checkDocumentKey(namespace, key); err != nil {
		return false, err
	}

	err = s.db.InTx(ctx, func(tx *Tx) (err error) {
		swapped, err = tx.swapDocument(ctx, namespace, key, old, value, expires)
		return err
	})
	return swapped, err
}

const swapDocument = `UPDATE documents SET encoding = $1, value = $2, expires_at = $3
	WHERE namespace = $4 AND key = $5 AND encoding = $6 AND value = $7 AND (expires_at = 0 OR expires_at > $8)`

func (t documentTx) swapDocument(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (bool, error) {
	encoding, text := encodeBody(value)
	oldEncoding, oldText := encodeBody(old)
	changed, err := t.change(ctx, swapDocument, encoding, text, micros(expires), namespace, key, oldEncoding, oldText, nowMicros())
	return changed > 0, err
}

// Claim writes a document unless another one is there, which may be the one that gives way. It returns nil when the
// document is there afterwards, else the other one.
func (t documentTx) Claim(ctx context.Context, claim exchange.Claim) (instead []byte, err error) {
	if err := checkDocumentKey(claim.Namespace, claim.Key); err != nil {
		return nil, err
	}
	encoding, text := encodeBody(claim.Value)
	changed, err := t.change(ctx, putDocumentIfAbsent, claim.Namespace, claim.Key, encoding, text, int64(0), nowMicros())
	if err == nil && changed > 0 && claim.Alias != "" && checkDocumentKey(claim.AliasNamespace, claim.Alias) == nil {
		aliasEncoding, key := encodeBody([]byte(claim.Key))
		return nil, t.do(ctx, putDocumentIfAbsent, claim.AliasNamespace, claim.Alias, aliasEncoding, key, int64(0), nowMicros())
	}
	if err != nil || changed > 0 {
		return nil, err
	}

	if claim.Instead != nil {
		if swapped, err := t.swapDocument(ctx, claim.Namespace, claim.Key, claim.Instead, claim.Value, time.Time{}); err != nil || swapped {
			return nil, err
		}
	}

	current, found, err := getDocument(ctx, t, claim.Namespace, claim.Key)
	if err != nil || !found || bytes.Equal(current, claim.Value) {
		return nil, err
	}

	return current, nil
}

func checkDocumentKey(namespace, key string) error {
	if len(namespace) > 128 || len(key) > maxDocumentKey {
		return fault.InField("key", "is longer than 2048 bytes")
	}
	return requireStorable("namespace", namespace, "key", key)
}

// Delete removes a document; it is no error when there is none.
func (s *State) Delete(ctx context.Context, namespace, key string) error {
	if !storable(namespace) || !storable(key) {
		return nil
	}
	return s.db.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, deleteDocument, namespace, key) })
}

const deleteDocument = `DELETE FROM documents WHERE namespace = $1 AND key = $2`

// RemoveDocument removes a document and reports whether there was one.
func (t documentTx) RemoveDocument(ctx context.Context, namespace, key string) (bool, error) {
	if !storable(namespace) || !storable(key) {
		return false, nil
	}
	removed, err := t.change(ctx, deleteDocument, namespace, key)
	return removed > 0, err
}

const listDocuments = `SELECT key, encoding, value FROM documents WHERE ` + liveDocument + `
	AND namespace = $2 AND key > $3 ORDER BY key LIMIT $4 + 0`

// List returns the documents of a namespace with keys after the given one, in byte order of their keys, at most 500.
func (s *State) List(
	ctx context.Context, namespace, after string, limit int,
) (keys []string, values [][]byte, err error) {
	return documentsAfter(ctx, s.db.engine.reader(), namespace, after, limit)
}

// ListDocuments is List inside the transaction.
func (t documentTx) ListDocuments(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	return documentsAfter(ctx, t, namespace, after, limit)
}

func documentsAfter(ctx context.Context, from querier, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	arguments := []any{nowMicros(), namespace, cleaned(after), pageSize(limit)}
	err = from.each(ctx, listDocuments, arguments, func(r row) error {
		var key, encoding, text string
		if err := r.Scan(&key, &encoding, &text); err != nil {
			return err
		}

		value, err := decodeBody(encoding, text)
		keys, values = append(keys, key), append(values, value)
		return err
	})
	return keys, values, err
}

// maxSeveral is how many documents Several returns. The statement always has that many places, so that it is one text.
const maxSeveral = 100

var selectSeveral = `SELECT key, encoding, value FROM documents WHERE ` + liveDocument + `
	AND namespace = $2 AND key IN (` + placeholders(3, maxSeveral) + `)`

// Several returns those documents of the keys, at most 100, that are there.
func (s *State) Several(ctx context.Context, namespace string, keys []string) (map[string][]byte, error) {
	found := make(map[string][]byte, len(keys))
	if len(keys) > maxSeveral {
		return nil, fault.InField("keys", "are more than 100")
	}

	arguments := []any{nowMicros(), cleaned(namespace)}
	for _, key := range keys {
		if storable(key) {
			arguments = append(arguments, key)
		}
	}

	if len(arguments) == 2 {
		return found, nil
	}
	for len(arguments) < 2+maxSeveral {
		arguments = append(arguments, arguments[2])
	}

	err := s.db.engine.reader().each(ctx, selectSeveral, arguments, func(r row) error {
		var key, encoding, text string
		if err := r.Scan(&key, &encoding, &text); err != nil {
			return err
		}

		value, err := decodeBody(encoding, text)
		found[key] = value
		return err
	})
	return found, err
}

// Count counts the documents of a namespace.
func (s *State) Count(ctx context.Context, namespace string) (int64, error) {
	var count int64
	_, err := first(ctx, s.db.engine.reader(),
		`SELECT COUNT(*) FROM documents WHERE `+liveDocument+` AND namespace = $2`, []any{nowMicros(), namespace}, &count)
	return count, err
}

// Documents that end keep their end.
const (
	selectForRewrite = `SELECT namespace, key, encoding, value FROM documents WHERE namespace = $1 ORDER BY key`
	rewriteDocument  = `UPDATE documents SET encoding = $1, value = $2 WHERE namespace = $3 AND key = $4 AND encoding = $5 AND value = $6`
)

// RewriteDocuments replaces the documents of small namespaces by what change makes of them, in one transaction; what change
// returns as it was stays. It returns how many were replaced. A document that another caller replaces at the same time is
// left to that caller. Afterwards the old texts are not in the file of a SQLite database any more, unless it is large, which the log
// tells; in PostgreSQL they go with the next vacuum.
func (s documentStore) RewriteDocuments(
	ctx context.Context, namespaces []string, change func(namespace, key string, value []byte) []byte,
) (replaced int, err error) {
	work := func(tx *Tx) error {
		replaced = 0
		for _, namespace := range namespaces {
			rows, err := rewritten(ctx, tx, namespace, change)
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
		e.logger.Warn("old texts of what was replaced may remain in free space of the database file until you run: sqlite3 "+
			e.path+" VACUUM", "error", err)
	}
}

const (
	cleanTries = 20
	cleanPause = 500 * time.Millisecond
)

// truncatePatience is how long all transactions wait at the most for those who read an old state, when the log is emptied.
const truncatePatience = 50 * time.Millisecond

// overwritten is the user_version of a file whose free places have nothing of removed rows: since it was made, or written anew, they are overwritten
// when they go (secure_delete). Files of before have 0.
const overwritten = 1

// markOverwritten says so of a file.
var markOverwritten = fmt.Sprintf("PRAGMA user_version = %d", overwritten)

// forgetFree writes a file of before of up to 256 MiB anew, once: all others wait for it. Then it empties the write-ahead log, which readers of
// an old state may hold for a moment.
func (e *sqliteEngine) forgetFree(ctx context.Context) (remains []string, err error) {
	remains, err = e.overwriteFree(ctx)
	if err != nil {
		return nil, err
	}

	for range cleanTries {
		if _, err := e.reads.ExecContext(ctx, checkpoint); err != nil { // most of it, while others write
			return nil, unavailable("clean the write-ahead log", err)
		}
		var busy, pages, moved int64
		err := e.writer.between(ctx, func(s *writerSession) error {
			patience := lockPatience
			if e.writer.locked {
				patience = shortPatience
			}
			if err := s.wait(truncatePatience); err != nil {
				return err
			}
			_, err := first(ctx, s, "PRAGMA wal_checkpoint(TRUNCATE)", nil, &busy, &pages, &moved)
			return errors.Join(err, s.wait(patience))
		})
		if err != nil {
			return nil, err
		}
		if busy == 0 {
			return remains, nil
		}
		if err := clock.Sleep(ctx, cleanPause); err != nil {
			return nil, unavailable("clean the write-ahead log", err)
		}
	}
	return nil, unavailable("clean the write-ahead log", errors.New("another process reads an old state of the database"))
}

func (e *sqliteEngine) overwriteFree(ctx context.Context) (remains []string, err error) {
	var version int64
	if _, err := first(ctx, e.reader(), "PRAGMA user_version", nil, &version); err != nil || version == overwritten {
		return nil, err
	}
	info, err := os.Stat(e.path)
	if err != nil {
		return nil, unavailable("clean the database file", err)
	}
	if info.Size() > maxForgotten {
		return []string{"the database file is large and was not rewritten: data that an older version of the program removed may remain in its free space until you run: sqlite3 " + File + " VACUUM"}, nil
	}
	return nil, e.writer.between(ctx, func(s *writerSession) error {
		if err := s.execute("VACUUM"); err != nil {
			return err
		}
		return s.execute(markOverwritten)
	})
}

// vacuumed are the tables that had something of a person.
var vacuumed = []string{
	"turns", "originals", "events", "replies", "deliveries", "jobs", "documents", "tokens", "demands", "audit", "person_identities", "dispatches",
	"tool_requests", "task_runs", "destinations", "list_entries", "mail_suppressions", "mail_failures", "watches", "bridge_items", "sessions",
	"session_map", "session_messages", "unanswered", "run_results", "erasures", "erasure_turns",
	"arrivals", "search_words", "search_pending", "mails", "mail_words", "mail_originals", "notices", "notice_ways", "notice_tallies", "notice_conditions",
}

// forgetFree lets PostgreSQL forget removed rows at once.
func (e *postgresEngine) forgetFree(ctx context.Context) (remains []string, err error) {
	remains = []string{"the write-ahead log, archives and replicas of PostgreSQL keep removed rows as long as they are set to"}
	for _, table := range vacuumed {
		if _, err := e.pool.ExecContext(ctx, "VACUUM "+table); err != nil {
			if ctx.Err() != nil {
				return nil, unavailable("vacuum", err)
			}
			return append(remains, "PostgreSQL did not let this user vacuum "+table+"; its autovacuum does it later"), nil
		}
	}
	return remains, nil
}

// rewritten returns the arguments of rewriteDocument for the documents that change.
func rewritten(ctx context.Context, tx *Tx, namespace string, change func(namespace, key string, value []byte) []byte) (rows [][]any, err error) {
	err = tx.each(ctx, selectForRewrite, []any{namespace}, func(r row) error {
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

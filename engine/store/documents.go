package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/internal/fault"
)

// documentStore changes the documents of adapters all at once; State is the adapters' own view.
type documentStore struct{ *shared }

// documentTx changes documents in a transaction.
type documentTx struct{ *transaction }

// maxDocumentKey bounds a document's key in bytes, so that every index entry fits.
const maxDocumentKey = 2048

// State keeps the adapters' private documents: durable, shared by all nodes, each with an optional end of life.
// Namespaces belong to one adapter each.
type State struct{ db *shared }

// liveDocument keeps documents that have not ended at $1.
const liveDocument = `(expires_at = 0 OR expires_at > $1)`

const selectDocument = `SELECT encoding, value FROM documents WHERE ` + liveDocument + ` AND namespace = $2 AND key = $3`

// Get returns a document.
func (s *State) Get(ctx context.Context, namespace, key string) ([]byte, bool, error) {
	return getDocument(ctx, s.db.engine.Reader(), s.db.nowMicros(), namespace, key)
}

func getDocument(ctx context.Context, from querier, now int64, namespace, key string) (value []byte, found bool, err error) {
	if !storable(namespace) || !storable(key) {
		return nil, false, nil
	}
	var encoding, text string
	found, err = first(ctx, from, selectDocument, []any{now, namespace, key}, &encoding, &text)
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
	return t.sql.Do(ctx, putDocument, namespace, key, encoding, text, micros(t.stored(expires)))
}

const keepDocument = `UPDATE documents SET expires_at = $1 WHERE namespace = $2 AND key = $3 AND expires_at > 0 AND expires_at < $1`

// KeepDocument lets a document, if there is one, not end before a time.
func (t documentTx) KeepDocument(ctx context.Context, namespace, key string, until time.Time) error {
	if err := checkDocumentKey(namespace, key); err != nil {
		return err
	}
	return t.sql.Do(ctx, keepDocument, micros(t.stored(until)), namespace, key)
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

// Once marks a key and reports whether it had no mark. The mark is this caller's own: after a commit without an answer a second look
// says whose it is. Where that fails, too, the outcome of the error is unknown and the key counts as used from then on.
func (s *State) Once(ctx context.Context, namespace, key string, expires time.Time) (first bool, err error) {
	own := []byte(rand.Text())
	current, _, err := s.PutIfAbsent(ctx, namespace, key, own, expires)
	if fault.OutcomeOf(err) == fault.Unknown {
		found, _, failure := s.PutIfAbsent(ctx, namespace, key, own, expires)
		if failure != nil {
			return false, err
		}
		current, err = found, nil
	}

	return err == nil && bytes.Equal(current, own), err
}

// PutDocumentIfAbsent is State.PutIfAbsent as part of a transaction.
func (t documentTx) PutDocumentIfAbsent(
	ctx context.Context, namespace, key string, value []byte, expires time.Time,
) (current []byte, inserted bool, err error) {
	if err := checkDocumentKey(namespace, key); err != nil {
		return nil, false, err
	}
	encoding, text := encodeBody(value)
	changed, err := t.sql.Change(ctx, putDocumentIfAbsent, namespace, key, encoding, text, micros(t.stored(expires)), t.nowMicros())
	if err != nil || changed > 0 {
		return value, err == nil, err
	}
	current, _, err = getDocument(ctx, t.sql, t.nowMicros(), namespace, key)
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
	changed, err := t.sql.Change(ctx, swapDocument, encoding, text, micros(t.stored(expires)), namespace, key, oldEncoding, oldText, t.nowMicros())
	return changed > 0, err
}

// Claim writes a document unless another one is there, which may be the one that gives way. It returns nil when the
// document is there afterwards, else the other one.
func (t documentTx) Claim(ctx context.Context, claim exchange.Claim) (instead []byte, err error) {
	if err := checkDocumentKey(claim.Namespace, claim.Key); err != nil {
		return nil, err
	}
	encoding, text := encodeBody(claim.Value)
	changed, err := t.sql.Change(ctx, putDocumentIfAbsent, claim.Namespace, claim.Key, encoding, text, micros(t.stored(claim.Expires)), t.nowMicros())
	if err == nil && changed > 0 && claim.Alias != "" && checkDocumentKey(claim.AliasNamespace, claim.Alias) == nil {
		aliasEncoding, key := encodeBody([]byte(claim.Key))
		return nil, t.sql.Do(ctx, putDocumentIfAbsent, claim.AliasNamespace, claim.Alias, aliasEncoding, key, int64(0), t.nowMicros())
	}
	if err != nil || changed > 0 {
		return nil, err
	}

	if claim.Instead != nil {
		if swapped, err := t.swapDocument(ctx, claim.Namespace, claim.Key, claim.Instead, claim.Value, claim.Expires); err != nil || swapped {
			return nil, err
		}
	}

	current, found, err := getDocument(ctx, t.sql, t.nowMicros(), claim.Namespace, claim.Key)
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
	return s.db.InTx(ctx, func(tx *Tx) error { return tx.sql.Do(ctx, deleteDocument, namespace, key) })
}

const deleteDocument = `DELETE FROM documents WHERE namespace = $1 AND key = $2`

// RemoveDocument removes a document and reports whether there was one.
func (t documentTx) RemoveDocument(ctx context.Context, namespace, key string) (bool, error) {
	if !storable(namespace) || !storable(key) {
		return false, nil
	}
	removed, err := t.sql.Change(ctx, deleteDocument, namespace, key)
	return removed > 0, err
}

const listDocuments = `SELECT key, encoding, value FROM documents WHERE ` + liveDocument + `
	AND namespace = $2 AND key > $3 ORDER BY key LIMIT $4 + 0`

// List returns the documents of a namespace with keys after the given one, in byte order of their keys, at most 500.
func (s *State) List(
	ctx context.Context, namespace, after string, limit int,
) (keys []string, values [][]byte, err error) {
	return documentsAfter(ctx, s.db.engine.Reader(), s.db.nowMicros(), namespace, after, limit)
}

// ListDocuments is List inside the transaction.
func (t documentTx) ListDocuments(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	return documentsAfter(ctx, t.sql, t.nowMicros(), namespace, after, limit)
}

func documentsAfter(ctx context.Context, from querier, now int64, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	arguments := []any{now, namespace, cleaned(after), pageSize(limit)}
	err = from.Each(ctx, listDocuments, arguments, func(r row) error {
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

	arguments := []any{s.db.nowMicros(), cleaned(namespace)}
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

	err := s.db.engine.Reader().Each(ctx, selectSeveral, arguments, func(r row) error {
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
	_, err := first(ctx, s.db.engine.Reader(),
		`SELECT COUNT(*) FROM documents WHERE `+liveDocument+` AND namespace = $2`, []any{s.db.nowMicros(), namespace}, &count)
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
				changed, err := tx.sql.Change(ctx, rewriteDocument, row...)
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
	s.engine.Replaced(ctx)

	return replaced, nil
}

// rewritten returns the arguments of rewriteDocument for the documents that change.
func rewritten(ctx context.Context, tx *Tx, namespace string, change func(namespace, key string, value []byte) []byte) (rows [][]any, err error) {
	err = tx.sql.Each(ctx, selectForRewrite, []any{namespace}, func(r row) error {
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

// UnfinishedFile is in a data directory from the first step of a restore to the last; its text says what is at work.
const UnfinishedFile = "restore.unfinished"

// markMoved is the document that says that the rows live on elsewhere: where. It stands beside database.MarkLoading.
const markMoved = "moved"

// Marks are what a database says about itself; empty = nothing is in the way.
type Marks struct{ Unfinished, Moved string }

// Marks reads them.
func (d *shared) Marks(ctx context.Context) (marks Marks, err error) {
	for key, into := range map[string]*string{database.MarkLoading: &marks.Unfinished, markMoved: &marks.Moved} {
		value, _, err := d.State().Get(ctx, database.MarkNamespace, key)
		if err != nil {
			return marks, err
		}
		*into = string(value)
	}
	return marks, nil
}

// MarkMoved says that the rows live on elsewhere from now on.
func (d *shared) MarkMoved(ctx context.Context, to string) error {
	return d.State().Put(ctx, database.MarkNamespace, markMoved, []byte(cleaned(to)), time.Time{})
}

// Complete says that the rows are all there. Nothing is leased, because no process lives that was at work when they were copied.
func (d *shared) Complete(ctx context.Context) error {
	return d.InTx(ctx, func(tx *Tx) error {
		if err := tx.sql.Do(ctx, takeAll); err != nil {
			return err
		}
		if err := tx.rebuild(ctx); err != nil {
			return err
		}
		return tx.sql.Do(ctx, deleteDocument, database.MarkNamespace, database.MarkLoading)
	})
}

// Found is what is in the place of a database.
type Found struct {
	Used  bool // it has messages, documents or tokens
	Marks Marks
}

// Look looks at the place of a database and changes nothing there; a SQLite database that is missing is not made.
func Look(ctx context.Context, options Options) (found Found, err error) {
	options = options.withDefaults()
	options.AsFound = true
	if options.URL == "sqlite" {
		info, err := os.Stat(filepath.Join(options.DataDir, File))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
			return Found{}, nil
		}
	}

	opened, err := database.Open(ctx, options.Database())
	if err != nil {
		return found, err
	}
	d := &shared{storeClock: &storeClock{local: options.Now}, engine: opened, dialect: dialects[opened.Kind()], options: options, cancel: func() {}}
	defer func() { err = errors.Join(err, d.Close()) }()

	if there, err := opened.HasSchema(ctx); err != nil || !there {
		return found, err
	}
	for _, table := range []string{"turns", "documents", "tokens"} {
		var one int64
		used, err := first(ctx, opened.Reader(), `SELECT 1 FROM `+table+` LIMIT 1`, nil, &one)
		if err != nil {
			return found, nil // a schema that was never finished has no rows
		}
		found.Used = found.Used || used
	}
	found.Marks, err = d.Marks(ctx)
	return found, err
}

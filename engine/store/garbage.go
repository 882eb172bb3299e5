package store

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/engine/store/database"
	"inbox/internal/blob"
	"inbox/internal/clock"
	"inbox/normalized"
)

// contentStore deletes contents outside of the database that nothing refers to.
type contentStore struct{ *shared }

// Contents outside of the database are listed in blob_garbage by the transaction that erases what referred to them, and
// deleted later, when nothing else refers to them: the same bytes may be a file in another sender's message.
const (
	deleteOriginal = `DELETE FROM originals WHERE digest = $1 RETURNING encoding`
	putGarbage     = `INSERT INTO blob_garbage (digest, created_at) VALUES ($1, $2) ON CONFLICT (digest) DO UPDATE SET created_at = excluded.created_at`
	selectGarbage  = `SELECT digest, created_at FROM blob_garbage WHERE digest > $1 ORDER BY digest LIMIT $2 + 0`
	isRunResult    = `SELECT 1 FROM run_results WHERE digest = $1 LIMIT 1`
	isMail         = `SELECT 1 FROM mails WHERE digest = $1 AND digest <> '' LIMIT 1`
	isOriginal     = `SELECT 1 FROM originals WHERE digest = $1 AND encoding = 'blob'`
)

// discard notes contents that may not be needed any more.
func (t *transaction) discard(ctx context.Context, digests ...string) error {
	for _, digest := range digests {
		if err := t.sql.Do(ctx, putGarbage, digest, t.nowMicros()); err != nil {
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

// Garbage is a content that may not be needed any more, and when that was last noted.
type Garbage struct {
	Digest string
	since  int64
}

// Garbage returns contents that may not be needed any more, in order after the given one.
func (s contentStore) Garbage(ctx context.Context, after string, limit int) (contents []Garbage, err error) {
	err = s.engine.Reader().Each(ctx, selectGarbage, []any{cleaned(after), int64(limit)}, func(r row) error {
		var content Garbage
		err := r.Scan(&content.Digest, &content.since)
		contents = append(contents, content)
		return err
	})
	return contents, err
}

// BlobNeeded reports whether anything refers to a content. It reads whole tables: ask rarely.
func (s contentStore) BlobNeeded(ctx context.Context, digest string) (bool, error) {
	needed := false
	ask := func(query, argument string) error {
		return s.engine.Reader().Each(ctx, query, []any{argument}, func(r row) error {
			var one int64
			needed = true
			return r.Scan(&one)
		})
	}

	for _, query := range []string{isOriginal, isRunResult, isMail} {
		if err := ask(query, cleaned(digest)); err != nil || needed {
			return needed, err
		}
	}
	for _, source := range referrings {
		for _, column := range source.texts {
			query := `SELECT 1 FROM ` + source.table + ` WHERE ` + column + ` LIKE $1 LIMIT 1`
			for _, before := range source.before() {
				if err := ask(query, "%"+before+strings.Map(hexOnly, digest)+"%"); err != nil || needed {
					return needed, err
				}
			}
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
func (s contentStore) DropGarbage(ctx context.Context, content Garbage) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, `DELETE FROM blob_garbage WHERE digest = $1 AND created_at = $2`, cleaned(content.Digest), content.since)
	})
}

// Blobs is where contents lie.
type Blobs interface {
	// DeleteIdle removes a content that no one has put since, and reports whether it is gone.
	DeleteIdle(ctx context.Context, digest string, since time.Time) (gone bool, err error)
}

// heldSpace is the namespace of documents that keep contents from being deleted: one for each backup that runs, with an end.
const heldSpace = "blobs.held"

// HoldBlobs keeps contents from being deleted until the instant, for one who copies what rows refer to; called again it moves the end.
// What is deleted at this moment was needed by no row before, so that a snapshot that is opened afterwards does not refer to it.
func (s contentStore) HoldBlobs(ctx context.Context, who string, until time.Time) error {
	return s.State().Put(ctx, heldSpace, who, []byte(until.UTC().Format(time.RFC3339)), until)
}

// ReleaseBlobs ends HoldBlobs.
func (s contentStore) ReleaseBlobs(ctx context.Context, who string) error {
	return s.State().Delete(ctx, heldSpace, who)
}

// deleteIdle deletes a content unless all are held.
func (s contentStore) deleteIdle(ctx context.Context, blobs Blobs, digest string, since time.Time) (gone bool, err error) {
	held, err := s.State().Count(ctx, heldSpace)
	if err != nil || held > 0 {
		return false, err
	}
	return blobs.DeleteIdle(ctx, digest, since)
}

// garbagePage is how many contents are looked at in one step.
const garbagePage = 100

// garbageFew is up to how many contents are looked for one by one; of more, all rows are read once for all of them.
const garbageFew = 4

// SweepBlobs deletes the contents that nothing refers to any more and that no one has put for the given time, and returns how
// many they were. After a crash it does again what was not finished.
func (s contentStore) SweepBlobs(ctx context.Context, blobs Blobs, idle time.Duration) (deleted int, err error) {
	var all *digestSet  // what all rows refer to; nil = they are asked about each content
	var since time.Time // what is put from then on may be referred to by rows that were read already
	for after := ""; ; {
		contents, err := s.Garbage(ctx, after, garbagePage)
		if err != nil {
			return deleted, err
		}

		if all == nil { // the rows are read once, however many pages there are and however long they take
			since = s.now().Add(-idle)
		}
		if all == nil && len(contents) > garbageFew {
			if all, err = s.neededBlobs(ctx); err != nil {
				return deleted, err
			}
		}

		for _, content := range contents {
			digest := content.Digest
			after = digest
			needed := all != nil && all.has(digest)
			if all == nil {
				if needed, err = s.BlobNeeded(ctx, digest); err != nil {
					return deleted, err
				}
			}

			gone := false
			if !needed {
				if gone, err = s.deleteIdle(ctx, blobs, digest, since); err != nil {
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

// A caller that keeps a content puts it first and writes down afterwards that it is needed, and some never come to the second: the
// message was refused, the process died. Nothing notes a content when it is put, which would cost a row for each file; the
// sweep reads instead what all rows refer to, and deletes what none does and no one has put for long.

// referring is where digests of contents stand. Contents are put into later texts from earlier ones (a draft becomes an
// answer), and a row may go when its content has moved on; so the sources are read in that order, and a digest that moves
// while they are read is found in one of the two places.
type referring struct {
	table string
	keys  []string // text columns, the beginning of an index
	texts []string
	all   bool // read every row; otherwise those that have the word digest
}

var referrings = []referring{
	{table: "documents", keys: []string{"namespace", "key"}, texts: []string{"value"}, all: true}, // each adapter has its own form
	{table: "agent_uploads", keys: []string{"id"}, texts: []string{"digest"}, all: true},
	{table: "mails", keys: []string{"id"}, texts: []string{"digest"}, all: true},
	{table: "jobs", keys: []string{"id"}, texts: []string{"payload"}},
	{table: "watches", keys: []string{"id"}, texts: []string{"data"}},
	{table: "bridge_clients", keys: []string{"id"}, texts: []string{"client"}},
	{table: "bridge_items", keys: []string{"id"}, texts: []string{"item"}},
	{table: "session_messages", keys: []string{"owner_key", "session_id"}, texts: []string{"message"}},
	{table: "tool_requests", keys: []string{"id"}, texts: []string{"request", "result"}},
	{table: "run_results", keys: []string{"turn_id"}, texts: []string{"digest"}, all: true},
	{table: "task_runs", keys: []string{"id"}, texts: []string{"run"}},
	{table: "demands", keys: []string{"id"}, texts: []string{"terms", "resolution", "notes"}},
	{table: "dispatches", keys: []string{"id"}, texts: []string{"call", "response"}},
	{table: "turns", keys: []string{"id"}, texts: []string{"message", "route", "resumed"}},
	{table: "events", keys: []string{"turn_id"}, texts: []string{"body"}},
	{table: "replies", keys: []string{"id"}, texts: []string{"response"}},
	{table: "deliveries", keys: []string{"id"}, texts: []string{"address", "data", "returned"}},
}

// before returns patterns of what stands before a digest in the texts: in JSON, and in JSON inside of JSON.
func (r referring) before() []string {
	if r.all {
		return []string{""}
	}
	return []string{`digest":"`, `digest__":__"`}
}

const (
	// orphanPage is how many rows, or values of the first key, are read in one statement.
	orphanPage = 500
	// orphanRest bounds the pause between two statements: as long as the last one took, so that at most half of one
	// connection is busy.
	orphanRest = time.Second
)

// selectBoundary returns the last key of the next page.
func (r referring) selectBoundary() string {
	keys := strings.Join(r.keys, ", ")
	return `SELECT ` + keys + ` FROM ` + r.table + ` WHERE (` + keys + `) > (` + placeholders(1, len(r.keys)) + `)
		ORDER BY ` + keys + ` LIMIT 1 OFFSET ` + strconv.Itoa(orphanPage-1)
}

// selectTexts returns the texts of a page; bounded = it has an end.
func (r referring) selectTexts(bounded bool) string {
	keys, text := strings.Join(r.keys, ", "), strings.Join(r.texts, ` || ' ' || `)
	query := `SELECT ` + text + ` FROM ` + r.table + ` WHERE (` + keys + `) > (` + placeholders(1, len(r.keys)) + `)`
	if bounded {
		query += ` AND (` + keys + `) <= (` + placeholders(1+len(r.keys), len(r.keys)) + `)`
	}
	if !r.all {
		query += ` AND ` + text + ` LIKE '%digest%'`
	}
	return query
}

const (
	selectOriginalBoundary = `SELECT digest FROM originals WHERE digest > $1 ORDER BY digest LIMIT 1 OFFSET 499`
	selectOriginals        = `SELECT digest FROM originals WHERE digest > $1 AND digest <= $2 AND encoding = 'blob'`
	lastDigest             = "g" // behind every digest
)

// digestSet remembers digests in a fixed space. It never forgets one, and may think of one in many that it knows it: then a
// content stays until the next sweep, which draws other seeds.
type digestSet struct {
	seeds [2]maphash.Seed
	bits  []uint64
}

const (
	digestBits   = 1 << 25 // 4 MiB: of a million digests known, one unknown in 10,000 is taken for one
	digestProbes = 5
)

func newDigestSet() *digestSet {
	return &digestSet{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, bits: make([]uint64, digestBits/64)}
}

// each returns the bits of a digest until visit returns false.
func (s *digestSet) each(digest string, visit func(word *uint64, bit uint64) bool) bool {
	one, step := maphash.String(s.seeds[0], digest), maphash.String(s.seeds[1], digest)|1
	for range digestProbes {
		place := one % digestBits
		if !visit(&s.bits[place/64], 1<<(place%64)) {
			return false
		}
		one += step
	}
	return true
}

func (s *digestSet) add(digest string) {
	s.each(digest, func(word *uint64, bit uint64) bool {
		*word |= bit
		return true
	})
}

func (s *digestSet) has(digest string) bool {
	return s.each(digest, func(word *uint64, bit uint64) bool { return *word&bit != 0 })
}

// addAll adds everything in a text that has the form of a digest, however it is written there.
func (s *digestSet) addAll(text string) {
	run := 0
	for i := range len(text) + 1 {
		if i < len(text) && hexOnly(rune(text[i])) >= 0 {
			run++
			continue
		}
		if run == blob.DigestBytes {
			s.add(text[i-run : i])
		}
		run = 0
	}
}

// IdleBlobs is where contents lie that can be listed.
type IdleBlobs interface {
	Blobs
	// EachIdle calls visit for the contents that no one has put since, until visit returns an error.
	EachIdle(ctx context.Context, since time.Time, visit func(digest string) error) error
}

// SweepOrphans deletes the contents to which no row refers and that no one has put for the given time, and returns how many
// they were. The time is longer than any caller takes from putting a content to writing down that it is needed. One process at a time
// should sweep; several do no harm.
func (s contentStore) SweepOrphans(ctx context.Context, blobs IdleBlobs, idle time.Duration) (deleted int, err error) {
	since := s.now().Add(-idle) // before the rows are read: what is put from now on is not looked at
	needed, err := s.neededBlobs(ctx)
	if err != nil {
		return 0, err
	}

	err = blobs.EachIdle(ctx, since, func(digest string) error {
		if needed.has(digest) {
			return nil
		}
		gone, err := s.deleteIdle(ctx, blobs, digest, since)
		if gone {
			deleted++
		}
		return err
	})
	return deleted, err
}

// neededBlobs reads what all rows refer to.
func (s contentStore) neededBlobs(ctx context.Context) (*digestSet, error) {
	needed := newDigestSet()
	for _, source := range referrings {
		if err := s.readReferring(ctx, source, needed); err != nil {
			return nil, err
		}
	}

	return needed, s.readOriginals(ctx, needed)
}

func (s contentStore) readReferring(ctx context.Context, source referring, needed *digestSet) error {
	after := make([]any, len(source.keys))
	for i := range after {
		after[i] = ""
	}

	for {
		begun := time.Now()
		last := make([]string, len(source.keys))
		into := make([]any, len(last))
		for i := range last {
			into[i] = &last[i]
		}

		found, err := first(ctx, s.engine.Reader(), source.selectBoundary(), after, into...)
		if err != nil {
			return err
		}

		arguments := after
		if found {
			after = make([]any, len(last))
			for i := range last {
				after[i] = last[i]
			}
			arguments = append(slices.Clip(arguments), after...)
		}

		err = s.engine.Reader().Each(ctx, source.selectTexts(found), arguments, func(r row) error {
			var text string
			err := r.Scan(&text)
			needed.addAll(text)
			return err
		})
		if err != nil || !found {
			return err
		}

		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}

func (s contentStore) readOriginals(ctx context.Context, needed *digestSet) error {
	for after := ""; after != lastDigest; {
		begun, last := time.Now(), lastDigest
		if _, err := first(ctx, s.engine.Reader(), selectOriginalBoundary, []any{after}, &last); err != nil {
			return err
		}

		err := s.engine.Reader().Each(ctx, selectOriginals, []any{after, last}, func(r row) error {
			var digest string
			err := r.Scan(&digest)
			needed.add(digest)
			return err
		})
		if err != nil {
			return err
		}

		after = last
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
	return nil
}

// rest leaves the database to others for as long as the work took that began then.
func rest(ctx context.Context, begun time.Time) error {
	if err := clock.Sleep(ctx, min(time.Since(begun), orphanRest)); err != nil {
		return database.Unavailable("sweep contents", err)
	}
	return nil
}

// Digests are the digests of contents that rows refer to, in a fixed space. It never forgets one, and may think of one in many that it
// knows it.
type Digests struct{ set *digestSet }

// NewDigests makes an empty set.
func NewDigests() Digests { return Digests{newDigestSet()} }

// Add adds a digest.
func (d Digests) Add(digest string) { d.set.add(digest) }

// Has reports whether a digest was added, or one in many that was not.
func (d Digests) Has(digest string) bool { return d.set.has(digest) }

// AddRow adds everything in a row of a table that may be the digest of a content.
func (d Digests) AddRow(table database.Table, values []any) {
	if table.Name == "originals" {
		if original := named(table, values); original["encoding"] == encodingBlob {
			d.set.addAll(fmt.Sprint(original["digest"]))
		}
		return
	}

	at := slices.IndexFunc(referrings, func(r referring) bool { return r.table == table.Name })
	if at < 0 {
		return
	}
	for i, column := range table.Columns {
		if text, is := values[i].(string); is && slices.Contains(referrings[at].texts, column.Name) {
			d.set.addAll(text)
		}
	}
}

func named(table database.Table, values []any) map[string]any {
	row := make(map[string]any, len(values))
	for i, column := range table.Columns {
		row[column.Name] = values[i]
	}
	return row
}

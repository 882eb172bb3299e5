package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/identity"
)

// personEraser keeps erasures of persons and does their steps on rows.
type personEraser struct{ *shared }

// eraseTx does them in a transaction.
type eraseTx struct{ *transaction }

// mentions reports whether a text has one of the names, not as a part of a longer one.
func mentions(text string, names []string) bool {
	text = strings.ToLower(text)
	for _, name := range names {
		for at := 0; ; {
			i := strings.Index(text[at:], name)
			if i < 0 {
				break
			}
			at += i
			if standsAlone(text, name, at, at+len(name)) {
				return true
			}
			at++
		}
	}
	return false
}

// standsAlone reports whether a name in a text is not a part of a longer one: "bob@x.example" in "jimbob@x.example", or the address of a server,
// which is the subject of an agent, in the address of a page or an actor there.
func standsAlone(text, name string, begin, end int) bool {
	if wordAt(text, begin-1, false) || wordAt(text, end, true) {
		return false
	}
	_, path, isAddress := strings.Cut(name, "://")
	if !isAddress || strings.Contains(path, "/") || end >= len(text) {
		return true
	}
	switch rest := text[end:]; rest[0] {
	case '/': // one at the end names the same
		return len(rest) == 1 || !wordAt(rest, 1, false) && !strings.ContainsRune("/?#%~@.", rune(rest[1]))
	case '?', '#', ':':
		return !wordAt(rest, 1, false)
	case '%':
		return false
	}
	return true
}

// replaceMentions writes another text in the place of each name that stands alone.
func replaceMentions(text string, patterns []*regexp.Regexp, names []string, with string) string {
	for i, pattern := range patterns {
		var out strings.Builder
		last, folded := 0, asciiLower(text)
		for _, at := range pattern.FindAllStringIndex(text, -1) {
			if standsAlone(folded, names[i], at[0], at[1]) {
				out.WriteString(text[last:at[0]] + with)
				last = at[1]
			}
		}
		text = out.String() + text[last:]
	}
	return text
}

// asciiLower keeps the places of all bytes.
func asciiLower(text string) string {
	folded := []byte(text)
	for i, b := range folded {
		if b >= 'A' && b <= 'Z' {
			folded[i] = b + 'a' - 'A'
		}
	}
	return string(folded)
}

// wordAt reports whether the byte goes on with a name: "bob@x.example" is none in "jimbob@x.example" and "bob@x.example.org".
func wordAt(text string, at int, after bool) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 || c == '_' || c == '-'
	if after && c == '.' { // the end of a sentence
		return wordAt(text, at+1, false)
	}
	return letter || !after && (c == '.' || c == '+')
}

// Stages of an erasure, in their order.
const (
	EraseFind     = "find"     // which messages are the person's
	EraseStop     = "stop"     // what runs and what waits to leave is ended
	EraseEmpty    = "empty"    // words and files go
	EraseDerived  = "derived"  // what was made of the whole conversations, in messages of others
	EraseTell     = "tell"     // other servers hear that answers are taken back
	EraseNames    = "names"    // what has the person's names in it, beside messages
	EraseRemove   = "remove"   // the rows of the messages
	EraseContents = "contents" // native forms and files that nothing else has
	EraseClean    = "clean"    // free places of the database's files
	EraseDone     = "done"
)

// Receipt says that a person was erased, without saying who: it is kept.
type Receipt struct {
	ID          string           `json:"id"`
	Stage       string           `json:"stage"` // done, or how far it has come
	RequestedBy string           `json:"requested_by"`
	RequestedAt time.Time        `json:"requested_at"`
	EndedAt     time.Time        `json:"ended_at,omitzero"`
	Identifiers []string         `json:"identifiers"` // HMAC-SHA256 of each name with the key of this server
	Counts      map[string]int64 `json:"counts"`      // what was removed
	Remains     []string         `json:"remains,omitempty"`
}

// Erasure is one that is under way or done.
type Erasure struct {
	Receipt Receipt
	After   string      // how far the stage has come
	Person  PersonNames // empty when it is done
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, one := range list {
		set[one] = true
	}
	return set
}

// BeginErasure stores an erasure; the running server does it. What the person sends from now on is not erased.
func (s personEraser) BeginErasure(ctx context.Context, names PersonNames, hashed []string, by string) (Receipt, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Receipt{}, err
	}
	receipt := Receipt{
		ID: id.String(), Stage: EraseFind, RequestedBy: by, RequestedAt: s.now().UTC().Truncate(time.Millisecond),
		Identifiers: hashed, Counts: map[string]int64{},
	}
	person, err := json.Marshal(names)
	if err != nil {
		return receipt, fmt.Errorf("encode person: %w", err)
	}
	text, err := json.Marshal(receipt)
	if err != nil {
		return receipt, fmt.Errorf("encode receipt: %w", err)
	}

	return receipt, s.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.nextListVersion(ctx); err != nil { // servers that run notice at once
			return err
		}
		return tx.sql.Do(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
			VALUES ($1, $2, $3, $4, 0, '', $5, $6)`, receipt.ID, receipt.Stage, cleaned(by), micros(receipt.RequestedAt), string(person), string(text))
	})
}

const erasureColumns = `stage, ended_at, after_id, person, receipt FROM erasures`

func scanErasure(r row) (e Erasure, err error) {
	var stage, person, receipt string
	var ended int64
	if err := r.Scan(&stage, &ended, &e.After, &person, &receipt); err != nil {
		return e, err
	}
	if err := json.Unmarshal([]byte(receipt), &e.Receipt); err != nil {
		return e, fmt.Errorf("decode receipt: %w", err)
	}
	if person != "" {
		if err := json.Unmarshal([]byte(person), &e.Person); err != nil {
			return e, fmt.Errorf("decode person: %w", err)
		}
	}
	e.Receipt.Stage, e.Receipt.EndedAt = stage, instant(ended)
	return e, nil
}

// Erasure returns one; fault.NotFound when there is none.
func (s personEraser) Erasure(ctx context.Context, id string) (e Erasure, err error) {
	found := false
	err = s.engine.Reader().Each(ctx, `SELECT `+erasureColumns+` WHERE id = $1`, []any{cleaned(id)}, func(r row) error {
		e, err = scanErasure(r)
		found = true
		return err
	})
	if err == nil && !found {
		err = notFound("erasure")
	}
	return e, err
}

// OpenErasures returns those that are not done, with ids after the given one, oldest first, at most 100.
func (s personEraser) OpenErasures(ctx context.Context, after string) (open []Erasure, err error) {
	err = s.engine.Reader().Each(ctx, `SELECT `+erasureColumns+` WHERE ended_at = 0 AND id > $1 ORDER BY id LIMIT 100`, []any{after}, func(r row) error {
		e, err := scanErasure(r)
		open = append(open, e)
		return err
	})
	return open, err
}

// Receipts lists erasures, newest first; before is the id of the last one of the page before.
func (s personEraser) Receipts(ctx context.Context, before string, limit int) ([]Receipt, error) {
	if before == "" {
		before = "~"
	}
	receipts := []Receipt{}
	err := s.engine.Reader().Each(ctx, `SELECT `+erasureColumns+` WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0`, []any{cleaned(before), pageSize(limit)}, func(r row) error {
		e, err := scanErasure(r)
		receipts = append(receipts, e.Receipt)
		return err
	})
	return receipts, err
}

// progress moves an erasure and adds to its counts in the transaction that did the work. Of an erasure that another node has moved it changes nothing.
func (t eraseTx) progress(ctx context.Context, id, stage, next, after string, counts map[string]int64, remains ...string) error {
	var text string
	if found, err := first(ctx, t.sql, `UPDATE erasures SET after_id = after_id WHERE id = $1 AND stage = $2 RETURNING receipt`, []any{id, stage}, &text); err != nil || !found {
		return err
	}
	var receipt Receipt
	if err := json.Unmarshal([]byte(text), &receipt); err != nil {
		return fmt.Errorf("decode receipt: %w", err)
	}
	for what, count := range counts {
		if count > 0 {
			receipt.Counts[what] += count
		}
	}
	receipt.Remains = append(receipt.Remains, remains...)
	body, err := json.Marshal(receipt)
	if err != nil {
		return fmt.Errorf("encode receipt: %w", err)
	}

	if err := t.sql.Do(ctx, `UPDATE erasures SET stage = $1, after_id = $2, receipt = $3 WHERE id = $4`, next, after, string(body), id); err != nil {
		return err
	}
	switch next {
	case EraseClean: // who it is must not stand in what is cleaned
		return t.sql.Do(ctx, `UPDATE erasures SET person = '' WHERE id = $1`, id)
	case EraseDone:
		return t.sql.Do(ctx, `UPDATE erasures SET ended_at = $1 WHERE id = $2`, t.nowMicros(), id)
	}
	return nil
}

// still moves an erasure within its stage and adds to its counts; errMoved when another node has done that portion or ended the stage.
func (t eraseTx) still(ctx context.Context, id, stage, from, after string, counts map[string]int64) error {
	moved, err := t.sql.Change(ctx, `UPDATE erasures SET after_id = $1 WHERE id = $2 AND stage = $3 AND after_id = $4`, after, id, stage, from)
	if err == nil && moved == 0 {
		err = errMoved
	}
	if err != nil {
		return err
	}
	return t.progress(ctx, id, stage, stage, after, counts)
}

// EndStage moves an erasure to its next stage, with what remains for the receipt.
func (s personEraser) EndStage(ctx context.Context, id, stage, next string, counts map[string]int64, remains ...string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.progress(ctx, id, stage, next, "", counts, remains...)
	})
}

// FindErased notes the messages of the person, and those by which our agents passed them on to each other.
func (s personEraser) FindErased(ctx context.Context, e Erasure) error {
	id, after := e.Receipt.ID, e.After
	var page []string
	flush := func() error {
		if len(page) == 0 {
			return nil
		}
		err := s.inBackground(ctx, func(tx *Tx) error {
			for _, turn := range page {
				if err := tx.addErased(ctx, id, turn, 0); err != nil {
					return err
				}
			}
			return tx.progress(ctx, id, EraseFind, EraseFind, page[len(page)-1], nil)
		})
		page = page[:0]
		return err
	}

	err := s.PersonTurns(ctx, e.Person, after, id, func(turn string) error {
		page = append(page, turn)
		if len(page) < retainBatch {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return s.EndStage(ctx, id, EraseFind, EraseStop, nil)
}

// maxPassedOn bounds how often one message is followed from agent to agent; chains end before (max_hops).
const maxPassedOn = 40

func (t eraseTx) addErased(ctx context.Context, erasure, turn string, depth int) error {
	added, err := t.sql.Change(ctx, `INSERT INTO erasure_turns (erasure_id, turn_id) VALUES ($1, $2) ON CONFLICT (erasure_id, turn_id) DO NOTHING`, erasure, turn)
	if err != nil || added == 0 || depth > maxPassedOn {
		return err
	}

	for _, call := range mustColumn(ctx, t.sql, &err, `SELECT id FROM dispatches WHERE turn_id = $1`, turn) {
		for _, passed := range mustColumn(ctx, t.sql, &err, `SELECT id FROM turns WHERE native_key = $1 AND native_id = $2`, hashKey(call), call) {
			if err := t.addErased(ctx, erasure, passed, depth+1); err != nil {
				return err
			}
		}
	}
	return err
}

// mustColumn returns the first column of a query; its error is left in err, and nothing is asked after one.
func mustColumn(ctx context.Context, from querier, err *error, query string, arguments ...any) (values []string) {
	if *err != nil {
		return nil
	}
	values, *err = column[string](ctx, from, query, arguments)
	return values
}

// ErasedTurns returns messages of an erasure with ids after the given one, in order.
func (s personEraser) ErasedTurns(ctx context.Context, id, after string, limit int) ([]string, error) {
	const query = `SELECT turn_id FROM erasure_turns WHERE erasure_id = $1 AND turn_id > $2 ORDER BY turn_id LIMIT $3 + 0`
	return column[string](ctx, s.engine.Reader(), query, []any{id, after, int64(limit)})
}

// AnswersOf returns the ids of the answers of a message.
func (s personEraser) AnswersOf(ctx context.Context, turnID string) ([]string, error) {
	var err error
	ids := mustColumn(ctx, s.engine.Reader(), &err, `SELECT id FROM replies WHERE turn_id = $1 AND deleted_at = 0 ORDER BY id`, turnID)
	return ids, err
}

// UnsentOf returns the ids of deliveries of a message that have not ended; told = those that take an answer back.
func (s personEraser) UnsentOf(ctx context.Context, turnID string, told bool) ([]string, error) {
	var err error
	ids := mustColumn(ctx, s.engine.Reader(), &err, `SELECT id FROM deliveries WHERE turn_id = $1 AND state IN ('pending', 'retry', 'sending')
		AND ((action = 'delete') = (CASE WHEN $2 = 1 THEN TRUE ELSE FALSE END)) ORDER BY id`, turnID, flag(told))
	return ids, err
}

// TellingOf counts what still tells others that the answers of a message are taken back: deliveries, and jobs that make them.
func (s personEraser) TellingOf(ctx context.Context, turnID, spreadKind string) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT (SELECT COUNT(*) FROM deliveries WHERE turn_id = $1 AND state IN ('pending', 'retry', 'sending'))
		+ (SELECT COUNT(*) FROM jobs j JOIN replies r ON j.partition_of = r.id WHERE j.kind = $2 AND j.state <> 'dead' AND r.turn_id = $1)`, []any{turnID, spreadKind}, &count)
	return count, err
}

// RunningOf reports whether a worker has the job of a message.
func (s personEraser) RunningOf(ctx context.Context, turnID string) (bool, error) {
	var one int64
	return first(ctx, s.engine.Reader(), `SELECT 1 FROM jobs WHERE payload = $1 AND state = 'running' LIMIT 1`, []any{turnID}, &one)
}

// EmptyErased removes what was said in messages and answers. What other servers must hear about the answers stays until they did.
func (s personEraser) EmptyErased(ctx context.Context, e Erasure) error {
	return s.eachErased(ctx, e, EraseEmpty, EraseDerived, func(tx *Tx, turn string) (map[string]int64, error) {
		var route string
		found, err := first(ctx, tx.sql, `SELECT route FROM turns WHERE id = $1`, []any{turn}, &route)
		if err != nil || !found {
			return nil, err
		}
		if _, err := tx.endOriginal(ctx, turn); err != nil {
			return nil, err
		}
		if err := tx.forgetWith(ctx, turn, func(string) error { return nil }); err != nil {
			return nil, err
		}
		return map[string]int64{"messages": 1}, tx.sql.Do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, withoutWords(route), turn)
	})
}

const (
	selectErasedThreads = `SELECT e.turn_id, t.thread_key, t.thread_id FROM erasure_turns e JOIN turns t ON t.id = e.turn_id
		WHERE e.erasure_id = $1 AND e.turn_id > $2 ORDER BY e.turn_id LIMIT 500`
	selectOthersOfThread = `SELECT t.id FROM turns t WHERE t.thread_key = $1 AND t.thread_id = $2 AND t.id > $3
		AND NOT EXISTS (SELECT 1 FROM erasure_turns e WHERE e.erasure_id = $4 AND e.turn_id = t.id) ORDER BY t.id LIMIT $5 + 0`
)

// DeriveErased removes what was made of the whole conversations of the messages, in those of others. Each conversation is gone through once, and
// once more after a crash.
func (s personEraser) DeriveErased(ctx context.Context, e Erasure) error {
	seen := map[string]bool{} // keys of threads
	for after := e.After; ; {
		from := after
		type thread struct{ key, id string }
		var page []thread
		err := s.engine.Reader().Each(ctx, selectErasedThreads, []any{e.Receipt.ID, after}, func(r row) error {
			var one thread
			err := r.Scan(&after, &one.key, &one.id)
			page = append(page, one)
			return err
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.EndStage(ctx, e.Receipt.ID, EraseDerived, EraseTell, nil)
		}

		for _, one := range page {
			if seen[one.key] {
				continue
			}
			if err := s.deriveThread(ctx, e.Receipt.ID, one.key, one.id); err != nil {
				return err
			}
			seen[one.key] = true
		}
		if err := s.inBackground(ctx, func(tx *Tx) error { return tx.still(ctx, e.Receipt.ID, EraseDerived, from, after, nil) }); err != nil {
			return err
		}
	}
}

func (s personEraser) deriveThread(ctx context.Context, id, key, thread string) error {
	for after := ""; ; {
		var err error
		page := mustColumn(ctx, s.engine.Reader(), &err, selectOthersOfThread, key, thread, after, id, int64(retainBatch))
		if err != nil || len(page) == 0 {
			return err
		}

		after = page[len(page)-1]
		err = s.inBackground(ctx, func(tx *Tx) error {
			for _, turn := range page {
				if err := tx.forgetMade(ctx, turn); err != nil {
					return fmt.Errorf("turn %s: %w", turn, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// withoutWords is a route without what the message said.
func withoutWords(route string) string {
	notes := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(route), &notes) != nil {
		return "{}"
	}
	delete(notes, exchange.RouteWords)
	for _, words := range []string{"subject", exchange.RouteHistory, exchange.RouteFormat, "topic"} {
		delete(notes, words)
	}
	left, err := json.Marshal(notes)
	if err != nil {
		return "{}"
	}
	return string(left)
}

// forgetMade removes what was made of a whole conversation in one of its turns: results of runs, calls of tools, notes and summaries.
func (t eraseTx) forgetMade(ctx context.Context, turnID string) error {
	if err := t.removeResults(ctx, turnID); err != nil {
		return err
	}
	if err := t.erasure().forgetRows(ctx, endedToolRequests, endedToolRequests.done, turnID); err != nil {
		return err
	}
	return t.erasure().forgetNotes(ctx, turnID)
}

// eachErased does work for each message of an erasure, some in each transaction, and ends the stage.
func (s personEraser) eachErased(ctx context.Context, e Erasure, stage, next string, work func(tx *Tx, turn string) (map[string]int64, error)) error {
	for after := e.After; ; {
		page, err := s.ErasedTurns(ctx, e.Receipt.ID, after, retainBatch)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.EndStage(ctx, e.Receipt.ID, stage, next, nil)
		}

		from := after
		after = page[len(page)-1]
		err = s.inBackground(ctx, func(tx *Tx) error {
			counts := map[string]int64{}
			for _, turn := range page {
				made, err := work(tx, turn)
				if err != nil {
					return fmt.Errorf("turn %s: %w", turn, err)
				}
				for what, count := range made {
					counts[what] += count
				}
			}
			return tx.still(ctx, e.Receipt.ID, stage, from, after, counts)
		})
		if err != nil {
			return err
		}
	}
}

// RemoveErased removes the rows of the messages. Decisions about trust stay without who it was.
func (s personEraser) RemoveErased(ctx context.Context, e Erasure, pseudonym string) error {
	if err := s.removeJobsOf(ctx, e.Receipt.ID); err != nil {
		return err
	}
	return s.eachErased(ctx, e, EraseRemove, EraseContents, func(tx *Tx, turn string) (map[string]int64, error) {
		var err error
		answers := mustColumn(ctx, tx.sql, &err, `SELECT id FROM replies WHERE turn_id = $1`, turn)
		deliveries := mustColumn(ctx, tx.sql, &err, `SELECT id FROM deliveries WHERE turn_id = $1`, turn)
		if err != nil {
			return nil, err
		}
		for _, id := range append(append([]string{turn}, answers...), deliveries...) {
			if err := tx.sql.Do(ctx, `DELETE FROM bridge_items WHERE id = $1`, id); err != nil {
				return nil, err
			}
		}

		audited, err := tx.sql.Change(ctx, `UPDATE audit SET principal = $1, detail = '' WHERE turn_id = $2 AND turn_id <> ''`, pseudonym, turn)
		if err != nil {
			return nil, err
		}
		return map[string]int64{"answers": int64(len(answers)), "deliveries": int64(len(deliveries)), "audit": audited}, tx.erasure().removeTurn(ctx, turn)
	})
}

const selectErasedJobs = `SELECT id FROM jobs WHERE state <> 'running' AND payload IN (
	SELECT turn_id FROM erasure_turns WHERE erasure_id = $1
	UNION ALL SELECT r.id FROM erasure_turns e JOIN replies r ON r.turn_id = e.turn_id WHERE e.erasure_id = $1
	UNION ALL SELECT d.id FROM erasure_turns e JOIN deliveries d ON d.turn_id = e.turn_id WHERE e.erasure_id = $1)`

// removeJobsOf removes the jobs of the messages, their answers and deliveries. Each has a transaction of its own: a transaction that holds the
// partitions of several jobs, or rows of turns, could wait for one that waits for it.
func (s personEraser) removeJobsOf(ctx context.Context, erasure string) error {
	var err error
	for _, id := range mustColumn(ctx, s.engine.Reader(), &err, selectErasedJobs, erasure) {
		err := s.inBackground(ctx, func(tx *Tx) error {
			_, err := tx.removeWaiting(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return err
}

// keptNamespaces are documents that are no one's: keys of this server and marks of its work.
var keptNamespaces = []string{
	"identity.keys", "activitypub.key", "email/dkim", "acme", "acme.locks", "sealing", "limits", "database", "policy.secret", "agent.since", "erasure", "erasure.work", "retention", "blobs", "probe",
}

var uuidInText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// erasePortion is how many rows beside messages one transaction removes or changes.
const erasePortion = 100

// erasePortions changes rows in some transactions, each of which adds what it changed to the counts of the receipt: a process that dies between two
// of them leaves the rest for the next one, which finds it by the names.
func erasePortions[T any](ctx context.Context, s personEraser, id string, rows []T, change func(tx *Tx, one T, made map[string]int64) error) error {
	for portion := range slices.Chunk(rows, erasePortion) {
		err := s.inBackground(ctx, func(tx *Tx) error {
			made := map[string]int64{}
			for _, one := range portion {
				if err := change(tx, one, made); err != nil {
					return err
				}
			}
			return tx.still(ctx, id, EraseNames, "", "", made)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// EraseNames removes everything beside messages that has the names of a person, or is about the messages. Rows are found beside the writer.
func (s personEraser) EraseNames(ctx context.Context, e Erasure, pseudonym func(string) string) error {
	about, err := s.aboutErased(ctx, e.Receipt.ID)
	if err != nil {
		return err
	}
	names := e.Person.texts()
	if err := s.eraseSessions(ctx, e); err != nil {
		return err
	}
	if err := s.eraseDocuments(ctx, e.Receipt.ID, names, about); err != nil {
		return err
	}
	if err := s.eraseJobs(ctx, e.Receipt.ID, names, about); err != nil {
		return err
	}
	mails, err := mailStore(s).mailsOf(ctx, e.Person)
	if err != nil {
		return err
	}
	for _, id := range mails { // notices about them go first: a crash leaves the mails, by which they are found again
		about[id] = true
	}
	if err := s.erasePersonRows(ctx, e, pseudonym); err != nil {
		return err
	}
	if err := s.eraseMentions(ctx, e.Receipt.ID, names, about, pseudonym("person "+e.Receipt.ID)); err != nil {
		return err
	}
	if err := s.eraseApprover(ctx, e.Receipt.ID, names, pseudonym("person "+e.Receipt.ID)); err != nil {
		return err
	}
	err = erasePortions(ctx, s, e.Receipt.ID, mails, func(tx *Tx, id string, made map[string]int64) error {
		deleted, err := mailTx{tx.transaction}.deleteFound(ctx, selectOneMail, id)
		made["mails to the operator"] += int64(deleted)
		return err
	})
	if err != nil {
		return err
	}
	remains, err := s.namedByOthers(ctx, e.Person)
	if err != nil {
		return err
	}
	return s.EndStage(ctx, e.Receipt.ID, EraseNames, EraseRemove, nil, remains...)
}

// namedByOthers says in how much of what others sent the addresses of a person stand, as those of readers do: it is theirs, and stays.
func (s personEraser) namedByOthers(ctx context.Context, person PersonNames) (remains []string, err error) {
	addresses := mailAddresses(person)
	if len(addresses) == 0 {
		return nil, nil
	}
	mails := 0
	err = s.engine.Reader().Each(ctx, `SELECT head FROM mails`, nil, func(r row) error {
		var head string
		err := r.Scan(&head)
		if mentions(head, addresses) {
			mails++
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if mails > 0 {
		remains = append(remains, fmt.Sprintf("%d kept mails of others name an address of the person, as in To or Cc; see: inbox mail list", mails))
	}

	messages := 0
	for _, address := range addresses {
		condition := messagesWith("", address)
		condition.arguments, condition.where = append(condition.arguments, condition.arguments[0]), append(condition.where, "LOWER(route) LIKE ?")
		err := s.engine.Reader().Each(ctx, `SELECT message, route FROM turns WHERE `+condition.sql(0), condition.arguments, func(r row) error {
			var message, route string
			err := r.Scan(&message, &route)
			if mentions(message+"\n"+route, []string{address}) {
				messages++
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if messages > 0 {
		remains = append(remains, fmt.Sprintf("%d messages of others name an address of the person, as in To or Cc, or in words", messages))
	}
	return remains, nil
}

// aboutErased are the ids of the messages, their answers, deliveries and calls.
func (s personEraser) aboutErased(ctx context.Context, id string) (map[string]bool, error) {
	about := map[string]bool{}
	for _, query := range []string{
		`SELECT turn_id FROM erasure_turns WHERE erasure_id = $1`,
		`SELECT r.id FROM erasure_turns e JOIN replies r ON r.turn_id = e.turn_id WHERE e.erasure_id = $1`,
		`SELECT d.id FROM erasure_turns e JOIN deliveries d ON d.turn_id = e.turn_id WHERE e.erasure_id = $1`,
		`SELECT d.id FROM erasure_turns e JOIN dispatches d ON d.turn_id = e.turn_id WHERE e.erasure_id = $1`,
	} {
		var err error
		for _, id := range mustColumn(ctx, s.engine.Reader(), &err, query, id) {
			about[id] = true
		}
		if err != nil {
			return nil, err
		}
	}
	return about, nil
}

// eraseSessions deletes the sessions of the person, and those in which only the person spoke.
func (s personEraser) eraseSessions(ctx context.Context, e Erasure) error {
	own := setOf(e.Person.Principals)
	type session struct {
		owner, id, agent, thread string
		others                   bool // it has messages that are not erased
	}
	var all []session
	err := s.engine.Reader().Each(ctx, `SELECT owner, id, agent, thread_id FROM sessions ORDER BY owner_key, id`, nil, func(r row) error {
		var one session
		err := r.Scan(&one.owner, &one.id, &one.agent, &one.thread)
		all = append(all, one)
		return err
	})
	if err != nil {
		return err
	}

	const whose = `SELECT COUNT(*), COALESCE(SUM(CASE WHEN EXISTS (SELECT 1 FROM erasure_turns e WHERE e.erasure_id = $3 AND e.turn_id = t.id) THEN 1 ELSE 0 END), 0)
		FROM turns t WHERE t.thread_key = $1 AND t.thread_id = $2`
	var gone []session
	for _, one := range all {
		var turns, erased int64
		if _, err := first(ctx, s.engine.Reader(), whose, []any{hashKey(one.agent, one.thread), one.thread, e.Receipt.ID}, &turns, &erased); err != nil {
			return err
		}
		if one.others = erased < turns; own[one.owner] || erased > 0 && !one.others {
			gone = append(gone, one)
		}
	}
	if len(gone) == 0 {
		return nil
	}

	// What lies in them goes first: the sessions are how it is found again after a crash.
	ids := map[string]bool{}
	for _, one := range gone {
		ids[one.id] = true
	}
	var items []string
	err = s.engine.Reader().Each(ctx, `SELECT id, session_id FROM bridge_items`, nil, func(r row) error {
		var id, session string
		err := r.Scan(&id, &session)
		if ids[session] {
			items = append(items, id)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = erasePortions(ctx, s, e.Receipt.ID, items, func(tx *Tx, id string, _ map[string]int64) error {
		return tx.sql.Do(ctx, `DELETE FROM bridge_items WHERE id = $1`, id)
	})
	if err != nil {
		return err
	}

	for _, one := range gone {
		if err := s.eraseSession(ctx, e.Receipt.ID, one.owner, one.id, one.others); err != nil {
			return err
		}
	}
	return nil
}

func (s personEraser) eraseSession(ctx context.Context, erasure, owner, id string, others bool) error {
	if others { // the messages of the erasure are empty already
		if err := s.erasure().forgetSession(ctx, owner, id); err != nil {
			return err
		}
	}

	key := hashKey(owner)
	numbers, err := column[int64](ctx, s.engine.Reader(), `SELECT number FROM session_messages WHERE owner_key = $1 AND session_id = $2`, []any{key, id})
	if err != nil {
		return err
	}
	err = erasePortions(ctx, s, erasure, numbers, func(tx *Tx, number int64, _ map[string]int64) error {
		return tx.sql.Do(ctx, `DELETE FROM session_messages WHERE owner_key = $1 AND session_id = $2 AND number = $3`, key, id, number)
	})
	if err != nil {
		return err
	}
	return erasePortions(ctx, s, erasure, []string{id}, func(tx *Tx, id string, made map[string]int64) error {
		removed, err := tx.removeSession(ctx, key, id)
		made["sessions"] += removed
		return err
	})
}

// ofOthers reports whether a key or a payload names a message, an answer, a delivery, a call or a run that is not of the erasure: the
// work is then that of its sender, who waits for it, even if it mentions the person.
func (s personEraser) ofOthers(ctx context.Context, text string, about map[string]bool) (bool, error) {
	for _, id := range uuidInText.FindAllString(text, -1) {
		if about[id] {
			return false, nil
		}
		var one int64
		found, err := first(ctx, s.engine.Reader(), `SELECT 1 FROM turns WHERE id = $1 UNION ALL SELECT 1 FROM replies WHERE id = $1
			UNION ALL SELECT 1 FROM deliveries WHERE id = $1 UNION ALL SELECT 1 FROM dispatches WHERE id = $1
			UNION ALL SELECT 1 FROM demands WHERE id = $1 UNION ALL SELECT 1 FROM task_runs WHERE id = $1 LIMIT 1`, []any{id}, &one)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// eraseDocuments removes the documents of adapters and agents that name the person or the messages. A document whose key names the
// message of someone else is needed for its answer, and goes with it.
func (s personEraser) eraseDocuments(ctx context.Context, id string, names []string, about map[string]bool) error {
	for namespace, key := "", ""; ; {
		begun := time.Now()
		type document struct{ namespace, key, value string }
		var page []document
		rows := 0
		err := s.engine.Reader().Each(ctx, `SELECT namespace, key, encoding, value FROM documents WHERE (namespace, key) > ($1, $2)
			ORDER BY namespace, key LIMIT 500`, []any{namespace, key}, func(r row) error {
			var encoding, value string
			if err := r.Scan(&namespace, &key, &encoding, &value); err != nil {
				return err
			}
			rows++
			if encoding == encodingBase64 {
				if decoded, err := decodeBody(encoding, value); err == nil {
					value = string(decoded)
				}
			}
			if slices.Contains(keptNamespaces, namespace) {
				return nil
			}
			if mentions(key+"\n"+value, names) || slices.ContainsFunc(uuidInText.FindAllString(namespace+" "+key+" "+value, -1), func(id string) bool { return about[id] }) {
				page = append(page, document{namespace, key, value})
			}
			return nil
		})
		if err != nil {
			return err
		}

		var own []document
		for _, one := range page {
			others, err := s.ofOthers(ctx, one.namespace+" "+one.key, about)
			if err != nil {
				return err
			}
			if !others {
				own = append(own, one)
			}
		}

		err = erasePortions(ctx, s, id, own, func(tx *Tx, one document, made map[string]int64) error {
			for _, digest := range anyDigest.FindAllString(one.value, -1) {
				if err := tx.discard(ctx, digest); err != nil {
					return err
				}
			}
			deleted, err := tx.sql.Change(ctx, deleteDocument, one.namespace, one.key)
			made["documents"] += deleted
			return err
		})
		if err != nil {
			return err
		}
		if rows < 500 {
			return nil
		}
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}

// anyDigest finds contents however adapters write them in their documents.
var anyDigest = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// eraseJobs removes work that is about the person: letters of agents, notices, calls of webhooks. Work for the message of someone else
// stays, whatever its partition is called and whatever its last failure said; the failure is forgotten.
func (s personEraser) eraseJobs(ctx context.Context, id string, names []string, about map[string]bool) error {
	var ids, failures []string
	payloads := map[string]string{}
	err := s.engine.Reader().Each(ctx, `SELECT id, reason, payload FROM jobs WHERE state <> 'running'`, nil, func(r row) error {
		var id, reason, payload string
		err := r.Scan(&id, &reason, &payload)
		if mentions(payload, names) || slices.ContainsFunc(uuidInText.FindAllString(payload, -1), func(id string) bool { return about[id] }) {
			payloads[id] = payload
		}
		if mentions(reason, names) {
			failures = append(failures, id)
		}
		return err
	})
	if err != nil {
		return err
	}

	for job, payload := range payloads {
		others, err := s.ofOthers(ctx, payload, about)
		if err != nil {
			return err
		}
		if !others {
			ids = append(ids, job)
		}
	}
	err = erasePortions(ctx, s, id, failures, func(tx *Tx, id string, _ map[string]int64) error {
		return tx.sql.Do(ctx, `UPDATE jobs SET reason = '' WHERE id = $1 AND state <> 'running'`, id)
	})
	if err != nil {
		return err
	}
	for _, job := range ids { // one in each transaction; see removeJobsOf
		err := erasePortions(ctx, s, id, []string{job}, func(tx *Tx, job string, made map[string]int64) error {
			removed, err := tx.removeWaiting(ctx, job)
			made["jobs"] += removed
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ownRows are tables of which a person may have very many rows, by a principal; each has the column id.
var ownRows = []struct{ what, table, owner, change string }{
	{"webhooks", "watches", "principal", `DELETE FROM watches WHERE id = $1`},
	{"runs", "task_runs", "owner", `DELETE FROM task_runs WHERE id = $1`},
	{"audit", "audit", "principal", `UPDATE audit SET principal = $2, detail = '' WHERE id = $1`},
}

// erasePersonRows is about the tables whose rows are a person's by a column of their own.
func (s personEraser) erasePersonRows(ctx context.Context, e Erasure, pseudonym func(string) string) error {
	for _, principal := range e.Person.Principals {
		for _, rows := range ownRows {
			var err error
			ids := mustColumn(ctx, s.engine.Reader(), &err, `SELECT id FROM `+rows.table+` WHERE `+rows.owner+` = $1 ORDER BY id`, principal)
			if err != nil {
				return err
			}
			err = erasePortions(ctx, s, e.Receipt.ID, ids, func(tx *Tx, id string, made map[string]int64) error {
				arguments := []any{id}
				if strings.Contains(rows.change, "$2") {
					arguments = append(arguments, pseudonym(principal))
				}
				changed, err := tx.sql.Change(ctx, rows.change, arguments...)
				made[rows.what] += changed
				return err
			})
			if err != nil {
				return err
			}
		}
	}

	err := erasePortions(ctx, s, e.Receipt.ID, e.Person.Principals, func(tx *Tx, principal string, made map[string]int64) error {
		return tx.erasePrincipal(ctx, principal, made)
	})
	if err != nil {
		return err
	}
	err = erasePortions(ctx, s, e.Receipt.ID, e.Person.Linked, func(tx *Tx, linked LinkedName, made map[string]int64) error {
		return tx.eraseLinked(ctx, linked, made)
	})
	if err != nil {
		return err
	}
	return erasePortions(ctx, s, e.Receipt.ID, mailAddresses(e.Person), func(tx *Tx, mail string, made map[string]int64) error {
		return tx.eraseAddress(ctx, mail, pseudonym(mail), made)
	})
}

// counting returns a function that executes a statement and counts the rows that it changed.
func (t eraseTx) counting(ctx context.Context, made map[string]int64) func(what, query string, arguments ...any) error {
	return func(what, query string, arguments ...any) error {
		changed, err := t.sql.Change(ctx, query, arguments...)
		made[what] += changed
		return err
	}
}

func (t eraseTx) erasePrincipal(ctx context.Context, principal string, made map[string]int64) error {
	remove := t.counting(ctx, made)
	if err := remove("links", `DELETE FROM links WHERE $1 IN (first_key, second_key)`, hashKey(principal)); err != nil {
		return err
	}
	if err := remove("parties", `DELETE FROM turn_parties WHERE principal = $1`, principal); err != nil {
		return err
	}
	if err := remove("stops", `DELETE FROM list_entries WHERE list = 'stop' AND target = $1`, principal); err != nil {
		return err
	}
	_, subject, _ := strings.Cut(principal, " ")
	if id, is := strings.CutPrefix(subject, "token:"); is {
		if err := remove("tokens", `DELETE FROM tokens WHERE id = $1`, id); err != nil {
			return err
		}
		t.wake(ChannelTokens, "")
	}
	t.wake(ChannelLists, "")
	return t.sql.Do(ctx, `UPDATE list_version SET version = version + 1 WHERE one = 1`)
}

// eraseLinked is about a principal of which only what it said to one agent is erased.
func (t eraseTx) eraseLinked(ctx context.Context, linked LinkedName, made map[string]int64) error {
	remove := t.counting(ctx, made)
	if err := remove("links", `DELETE FROM links WHERE agent = $1 AND $2 IN (first_key, second_key)`, linked.Agent, hashKey(linked.Principal)); err != nil {
		return err
	}
	return remove("webhooks", `DELETE FROM watches WHERE agent = $1 AND principal = $2`, linked.Agent, linked.Principal)
}

// eraseAddress is about an address of mail. Who asked not to be written to is not written to: the address stays as its hash.
func (t eraseTx) eraseAddress(ctx context.Context, mail, hash string, made map[string]int64) error {
	remove := t.counting(ctx, made)
	if err := remove("mail failures", `DELETE FROM mail_failures WHERE address = $1`, mail); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, `INSERT INTO mail_suppressions (address, kind, reason, delivery_id, created_at)
		SELECT $1, kind, '', '', created_at FROM mail_suppressions WHERE address = $2 ON CONFLICT (address) DO NOTHING`, ErasedAddress(hash), mail); err != nil {
		return err
	}
	return remove("suppressions kept as a hash", `DELETE FROM mail_suppressions WHERE address = $1`, mail)
}

// ErasedAddress is how a suppressed address is kept of which only a hash may be.
func ErasedAddress(hash string) string { return "erased:" + hash }

// mailAddresses are the addresses of a person as mail has them.
func mailAddresses(person PersonNames) []string {
	list := make([]string, len(person.Addresses))
	for i, address := range person.Addresses {
		list[i] = strings.ToLower(address.Mail())
	}
	return list
}

// notedRows are the rows of a table with short texts.
type notedRows struct {
	table, text string
	keys        []string
	set         string // what the row keeps; empty: it is removed. %s is the person's pseudonym
	ids         bool   // it has words of messages and mails beside their ids
}

// noted are short texts that may name a person who decided, reported or could not be reached.
var noted = []notedRows{
	{"destinations", "destination || ' ' || reason", []string{"channel", "destination"}, "", false},
	{"counters", "counter_key", []string{"counter_key"}, "", false}, // what the person used up of limits
	{"audit", "principal || ' ' || detail", []string{"id"}, "principal = %s, detail = ''", false},
	{"notices", "subject || ' ' || title || ' ' || text || ' ' || body", []string{"id"}, "", true},
	{"notice_tallies", "newest || ' ' || second || ' ' || third", []string{"kind", "subject"}, "newest = '', second = '', third = ''", true},
	{"notice_conditions", "reason", []string{"kind", "subject"}, "reason = ''", true},
}

// eraseMentions goes through the tables in pages.
func (s personEraser) eraseMentions(ctx context.Context, id string, names []string, about map[string]bool, pseudonym string) error {
	for _, rows := range noted {
		after := make([]string, len(rows.keys)) // keys are never all empty
		query := `SELECT ` + rows.text + `, ` + strings.Join(rows.keys, ", ") + ` FROM ` + rows.table +
			` WHERE (` + strings.Join(rows.keys, ", ") + `) > (` + placeholders(1, len(rows.keys)) + `) ORDER BY ` + strings.Join(rows.keys, ", ") + ` LIMIT 1000`
		for read := 1000; read == 1000; {
			begun := time.Now()
			read = 0
			var found [][]any
			err := s.engine.Reader().Each(ctx, query, anyOf(after), func(r row) error {
				var text string
				into := []any{&text}
				for i := range after {
					into = append(into, &after[i])
				}
				read++
				if err := r.Scan(into...); err != nil || !mentions(text, names) && !(rows.ids && slices.ContainsFunc(uuidInText.FindAllString(text, -1), func(id string) bool { return about[id] })) {
					return err
				}
				found = append(found, anyOf(after))
				return nil
			})
			if err != nil {
				return err
			}

			err = erasePortions(ctx, s, id, found, func(tx *Tx, key []any, made map[string]int64) error {
				changed, err := tx.eraseNoted(ctx, rows, key, pseudonym)
				made[rows.table] += changed
				return err
			})
			if err != nil {
				return err
			}
			if err := rest(ctx, begun); err != nil {
				return err
			}
		}
	}
	return nil
}

func anyOf(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

// eraseNoted changes or removes one row of noted, with the ways of a notice, and returns how many there were: one or none.
func (t eraseTx) eraseNoted(ctx context.Context, rows notedRows, key []any, pseudonym string) (int64, error) {
	where := make([]string, len(key))
	for i := range key {
		where[i] = fmt.Sprintf("%s = $%d", rows.keys[i], i+1)
	}
	query := `DELETE FROM ` + rows.table + ` WHERE ` + strings.Join(where, " AND ")
	if rows.set != "" {
		set := rows.set
		if strings.Contains(set, "%s") {
			key = append(slices.Clone(key), pseudonym)
			set = strings.ReplaceAll(set, "%s", fmt.Sprintf("$%d", len(key)))
		}
		query = `UPDATE ` + rows.table + ` SET ` + set + ` WHERE ` + strings.Join(where, " AND ")
	}
	if rows.table == "notices" {
		if err := t.sql.Do(ctx, `DELETE FROM notice_ways WHERE notice_id = $1`, key...); err != nil {
			return 0, err
		}
	}
	return t.sql.Change(ctx, query, key...)
}

// eraseApprover takes the person out of what was decided about messages of others.
func (s personEraser) eraseApprover(ctx context.Context, id string, names []string, pseudonym string) error {
	patterns := make([]*regexp.Regexp, len(names))
	for i, name := range names {
		pattern, err := regexp.Compile(`(?i)` + regexp.QuoteMeta(name))
		if err != nil {
			return fmt.Errorf("name of a person: %w", err)
		}
		patterns[i] = pattern
	}
	var found []string
	err := s.engine.Reader().Each(ctx, `SELECT id, resolution, notes FROM demands WHERE status NOT IN ('issued', 'claimed')`, nil, func(r row) error {
		var id, resolution, notes string
		err := r.Scan(&id, &resolution, &notes)
		if mentions(resolution+"\n"+notes, names) {
			found = append(found, id)
		}
		return err
	})
	if err != nil {
		return err
	}

	return erasePortions(ctx, s, id, found, func(tx *Tx, demand string, made map[string]int64) error {
		var resolution, notes string
		there, err := first(ctx, tx.sql, `SELECT resolution, notes FROM demands WHERE id = $1`, []any{demand}, &resolution, &notes)
		if err != nil || !there || !mentions(resolution+"\n"+notes, names) {
			return err
		}
		resolution, notes = replaceMentions(resolution, patterns, names, pseudonym), replaceMentions(notes, patterns, names, pseudonym)
		made["decisions"]++
		return tx.sql.Do(ctx, `UPDATE demands SET resolution = $1, notes = $2 WHERE id = $3`, resolution, notes, demand)
	})
}

// CleanErased empties the free places of the database's files, and forgets the list of messages. It returns what it could not reach.
func (s personEraser) CleanErased(ctx context.Context, id string) (remains []string, err error) {
	for {
		page, err := s.ErasedTurns(ctx, id, "", 10*erasePortion)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return s.forgetFree(ctx)
		}
		last := page[len(page)-1]
		err = s.inBackground(ctx, func(tx *Tx) error {
			return tx.sql.Do(ctx, `DELETE FROM erasure_turns WHERE erasure_id = $1 AND turn_id <= $2`, id, last)
		})
		if err != nil {
			return nil, err
		}
	}
}

// forgetFree removes what waits to leave the search index, and overwrites the free places of all files.
func (s personEraser) forgetFree(ctx context.Context) (remains []string, err error) {
	if err := s.search().forgetWords(ctx); err != nil {
		return nil, err
	}
	if s.words != s.engine {
		if remains, err = s.words.ForgetFree(ctx); err != nil {
			return nil, err
		}
	}
	others, err := s.engine.ForgetFree(ctx)
	return append(remains, others...), err
}

// MailPrincipal is the principal of a mailbox that this server checked itself.
func MailPrincipal(domain string, address identity.ProvenAddress) string {
	return domain + " mailto:" + address.Mail()
}

// RepeatErasure stores an erasure that was done elsewhere before, under its id, so that it takes what came before it; the running server does it.
// Without names nothing of the person is here, and its receipt is stored alone. It reports whether the erasure was not known.
func (s personEraser) RepeatErasure(ctx context.Context, receipt Receipt, names PersonNames) (fresh bool, err error) {
	person, ended := "", receipt.EndedAt
	if len(names.Principals)+len(names.Addresses)+len(names.Linked) > 0 {
		encoded, err := json.Marshal(names)
		if err != nil {
			return false, fmt.Errorf("encode person: %w", err)
		}
		// Its waits are measured from the moment at which it is wanted.
		receipt.Stage, receipt.RequestedAt, receipt.Counts, receipt.Remains = EraseFind, s.now().UTC().Truncate(time.Millisecond), map[string]int64{}, nil
		person, ended, receipt.EndedAt = string(encoded), time.Time{}, time.Time{}
	} else if ended.IsZero() {
		receipt.Stage, ended = EraseDone, s.now().UTC().Truncate(time.Millisecond)
	}
	text, err := json.Marshal(receipt)
	if err != nil {
		return false, fmt.Errorf("encode receipt: %w", err)
	}

	err = s.InTx(ctx, func(tx *Tx) error {
		added, err := tx.sql.Change(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
			VALUES ($1, $2, $3, $4, $5, '', $6, $7) ON CONFLICT (id) DO NOTHING`,
			receipt.ID, receipt.Stage, cleaned(receipt.RequestedBy), micros(receipt.RequestedAt), micros(ended), person, string(text))
		fresh = added > 0
		return err
	})
	return fresh, err
}

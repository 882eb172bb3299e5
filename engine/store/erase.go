package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// personEraser keeps erasures of persons and does their steps on rows.
type personEraser struct{ *database }

// eraseTx does them in a transaction.
type eraseTx struct{ *transaction }

// PersonNames are all names by which a person is known here.
type PersonNames struct {
	Principals []string `json:"principals"`          // as in messages
	Addresses  []string `json:"addresses,omitempty"` // @user@domain, in lower case
}

// texts are the forms in which the names stand in documents and notes, in lower case.
func (p PersonNames) texts() []string {
	found := map[string]bool{}
	for _, principal := range p.Principals {
		_, subject, _ := strings.Cut(principal, " ")
		found[strings.ToLower(subject)] = true
	}
	for _, address := range p.Addresses {
		found[strings.TrimPrefix(address, "@")] = true // also inside of @user@domain and mailto:user@domain
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

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
			if !wordAt(text, at-1, false) && !wordAt(text, at+len(name), true) {
				return true
			}
			at++
		}
	}
	return false
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

// FindPerson completes names: linked identities, and those that verified messages show, until nothing new is found. It reads all
// messages, some times, beside the writer.
func (s personEraser) FindPerson(ctx context.Context, seed PersonNames) (PersonNames, error) {
	principals, addresses := setOf(seed.Principals), setOf(seed.Addresses)
	for {
		before := len(principals) + len(addresses)
		if err := s.linkedNames(ctx, principals, addresses); err != nil {
			return seed, err
		}

		names := PersonNames{slices.Sorted(maps.Keys(principals)), slices.Sorted(maps.Keys(addresses))}
		err := s.eachOf(ctx, names, "", "", func(_, principal string, sender normalized.Sender) error {
			if strings.HasPrefix(principal, "unverified ") || principals[principal] || sender.Verified {
				principals[principal] = true
			}
			if sender.Verified && principals[principal] && sender.Address != "" {
				addresses[strings.ToLower(sender.Address)] = true
			}
			return nil
		})
		if err != nil {
			return names, err
		}
		if len(principals)+len(addresses) == before {
			return PersonNames{slices.Sorted(maps.Keys(principals)), slices.Sorted(maps.Keys(addresses))}, nil
		}
	}
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, one := range list {
		set[one] = true
	}
	return set
}

func (s personEraser) linkedNames(ctx context.Context, principals, addresses map[string]bool) error {
	people := map[string]bool{}
	each := func(visit func(person, principal, address string)) error {
		return s.engine.reader().each(ctx, `SELECT person_id, principal, address FROM person_identities ORDER BY principal_key`, nil, func(r row) error {
			var person, principal, address string
			err := r.Scan(&person, &principal, &address)
			visit(person, principal, strings.ToLower(address))
			return err
		})
	}

	err := each(func(person, principal, address string) {
		if principals[principal] || principals[person] || address != "" && addresses[address] {
			people[person] = true
		}
	})
	if err != nil || len(people) == 0 {
		return err
	}
	return each(func(person, principal, address string) {
		if people[person] {
			principals[principal] = true
			if address != "" {
				addresses[address] = true
			}
		}
	})
}

// eachOf visits the messages of a person between two ids, in order. It reads all of them a page at a time.
func (s personEraser) eachOf(ctx context.Context, names PersonNames, after, until string, visit func(id, principal string, sender normalized.Sender) error) error {
	principals, addresses := setOf(names.Principals), setOf(names.Addresses)
	arguments := []any{"", ""}
	condition := make([]string, 0, len(names.Principals)+len(names.Addresses))
	for _, principal := range names.Principals {
		arguments = append(arguments, principal)
		condition = append(condition, fmt.Sprintf("principal = $%d", len(arguments)))
	}
	for _, address := range names.Addresses {
		arguments = append(arguments, `%"address":"`+strings.NewReplacer("%", "_", `\`, "_").Replace(address)+`"%`)
		condition = append(condition, fmt.Sprintf("LOWER(message) LIKE $%d", len(arguments)))
	}
	if len(condition) == 0 {
		return nil
	}
	if until == "" {
		until = "~"
	}
	type found struct {
		id, principal string
		sender        normalized.Sender
	}

	for {
		begun, last := time.Now(), until
		more, err := first(ctx, s.engine.reader(), `SELECT id FROM turns WHERE id > $1 AND id <= $2 ORDER BY id LIMIT 1 OFFSET 999`, []any{after, until}, &last)
		if err != nil {
			return err
		}

		arguments[0], arguments[1] = after, last
		var page []found
		query := `SELECT id, principal, message FROM turns WHERE id > $1 AND id <= $2 AND (` + strings.Join(condition, " OR ") + `) ORDER BY id`
		err = s.engine.reader().each(ctx, query, arguments, func(r row) error {
			var id, principal, stored string
			if err := r.Scan(&id, &principal, &stored); err != nil {
				return err
			}
			var message struct {
				Sender normalized.Sender `json:"sender"`
			}
			if err := json.Unmarshal([]byte(stored), &message); err != nil {
				return fmt.Errorf("decode message of turn %s: %w", id, err)
			}
			if !principals[principal] && !addresses[strings.ToLower(message.Sender.Address)] {
				return nil
			}
			page = append(page, found{id, principal, message.Sender})
			return nil
		})
		if err != nil {
			return err
		}

		for _, one := range page {
			if err := visit(one.id, one.principal, one.sender); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		after = last
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}

// PersonTurns visits the ids of a person's messages that came before the id, in the order of their arrival, after the given one.
func (s personEraser) PersonTurns(ctx context.Context, names PersonNames, after, until string, visit func(id string) error) error {
	return s.eachOf(ctx, names, after, until, func(id, _ string, _ normalized.Sender) error { return visit(id) })
}

// BeginErasure stores an erasure; the running server does it. What the person sends from now on is not erased.
func (s personEraser) BeginErasure(ctx context.Context, names PersonNames, hashed []string, by string) (Receipt, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Receipt{}, err
	}
	receipt := Receipt{
		ID: id.String(), Stage: EraseFind, RequestedBy: by, RequestedAt: time.Now().UTC().Truncate(time.Millisecond),
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
		return tx.do(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
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
	err = s.engine.reader().each(ctx, `SELECT `+erasureColumns+` WHERE id = $1`, []any{cleaned(id)}, func(r row) error {
		e, err = scanErasure(r)
		found = true
		return err
	})
	if err == nil && !found {
		err = notFound("erasure")
	}
	return e, err
}

// OpenErasures returns those that are not done, oldest first, at most 100.
func (s personEraser) OpenErasures(ctx context.Context) (open []Erasure, err error) {
	err = s.engine.reader().each(ctx, `SELECT `+erasureColumns+` WHERE ended_at = 0 ORDER BY id LIMIT 100`, nil, func(r row) error {
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
	err := s.engine.reader().each(ctx, `SELECT `+erasureColumns+` WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0`, []any{cleaned(before), pageSize(limit)}, func(r row) error {
		e, err := scanErasure(r)
		receipts = append(receipts, e.Receipt)
		return err
	})
	return receipts, err
}

// progress moves an erasure and adds to its counts in the transaction that did the work. It reports whether the erasure was still in the stage.
func (t eraseTx) progress(ctx context.Context, id, stage, next, after string, counts map[string]int64, remains ...string) (bool, error) {
	var text string
	if found, err := first(ctx, t, `UPDATE erasures SET after_id = after_id WHERE id = $1 AND stage = $2 RETURNING receipt`, []any{id, stage}, &text); err != nil || !found {
		return false, err
	}
	var receipt Receipt
	if err := json.Unmarshal([]byte(text), &receipt); err != nil {
		return false, fmt.Errorf("decode receipt: %w", err)
	}
	for what, count := range counts {
		if count > 0 {
			receipt.Counts[what] += count
		}
	}
	receipt.Remains = append(receipt.Remains, remains...)
	body, err := json.Marshal(receipt)
	if err != nil {
		return false, fmt.Errorf("encode receipt: %w", err)
	}

	if err := t.do(ctx, `UPDATE erasures SET stage = $1, after_id = $2, receipt = $3 WHERE id = $4`, next, after, string(body), id); err != nil {
		return false, err
	}
	switch next {
	case EraseClean: // who it is must not stand in what is cleaned
		return true, t.do(ctx, `UPDATE erasures SET person = '' WHERE id = $1`, id)
	case EraseDone:
		return true, t.do(ctx, `UPDATE erasures SET ended_at = $1 WHERE id = $2`, nowMicros(), id)
	}
	return true, nil
}

// EndStage moves an erasure to its next stage, with what remains for the receipt.
func (s personEraser) EndStage(ctx context.Context, id, stage, next string, counts map[string]int64, remains ...string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		_, err := tx.progress(ctx, id, stage, next, "", counts, remains...)
		return err
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
		err := s.InTx(ctx, func(tx *Tx) error {
			for _, turn := range page {
				if err := tx.addErased(ctx, id, turn, 0); err != nil {
					return err
				}
			}
			_, err := tx.progress(ctx, id, EraseFind, EraseFind, page[len(page)-1], nil)
			return err
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
	added, err := t.change(ctx, `INSERT INTO erasure_turns (erasure_id, turn_id) VALUES ($1, $2) ON CONFLICT (erasure_id, turn_id) DO NOTHING`, erasure, turn)
	if err != nil || added == 0 || depth > maxPassedOn {
		return err
	}

	for _, call := range mustColumn(ctx, t, &err, `SELECT id FROM dispatches WHERE turn_id = $1`, turn) {
		for _, passed := range mustColumn(ctx, t, &err, `SELECT id FROM turns WHERE native_key = $1 AND native_id = $2`, hashKey(call), call) {
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
	*err = from.each(ctx, query, arguments, func(r row) error {
		var value string
		err := r.Scan(&value)
		values = append(values, value)
		return err
	})
	return values
}

// ErasedTurns returns messages of an erasure with ids after the given one, in order.
func (s personEraser) ErasedTurns(ctx context.Context, id, after string, limit int) ([]string, error) {
	var err error
	ids := mustColumn(ctx, s.engine.reader(), &err, `SELECT turn_id FROM erasure_turns WHERE erasure_id = $1 AND turn_id > $2 ORDER BY turn_id LIMIT $3 + 0`, id, after, int64(limit))
	return ids, err
}

// AnswersOf returns the ids of the answers of a message.
func (s personEraser) AnswersOf(ctx context.Context, turnID string) ([]string, error) {
	var err error
	ids := mustColumn(ctx, s.engine.reader(), &err, `SELECT id FROM replies WHERE turn_id = $1 AND deleted_at = 0 ORDER BY id`, turnID)
	return ids, err
}

// UnsentOf returns the ids of deliveries of a message that have not ended; told = those that take an answer back.
func (s personEraser) UnsentOf(ctx context.Context, turnID string, told bool) ([]string, error) {
	var err error
	ids := mustColumn(ctx, s.engine.reader(), &err, `SELECT id FROM deliveries WHERE turn_id = $1 AND state IN ('pending', 'retry', 'sending')
		AND ((action = 'delete') = (CASE WHEN $2 = 1 THEN TRUE ELSE FALSE END)) ORDER BY id`, turnID, flag(told))
	return ids, err
}

// TellingOf counts what still tells others that the answers of a message are taken back: deliveries, and jobs that make them.
func (s personEraser) TellingOf(ctx context.Context, turnID, spreadKind string) (count int64, err error) {
	_, err = first(ctx, s.engine.reader(), `SELECT (SELECT COUNT(*) FROM deliveries WHERE turn_id = $1 AND state IN ('pending', 'retry', 'sending'))
		+ (SELECT COUNT(*) FROM jobs j JOIN replies r ON j.partition_of = r.id WHERE j.kind = $2 AND j.state <> 'dead' AND r.turn_id = $1)`, []any{turnID, spreadKind}, &count)
	return count, err
}

// RunningOf reports whether a worker has the job of a message.
func (s personEraser) RunningOf(ctx context.Context, turnID string) (bool, error) {
	var one int64
	return first(ctx, s.engine.reader(), `SELECT 1 FROM jobs WHERE payload = $1 AND state = 'running' LIMIT 1`, []any{turnID}, &one)
}

// EmptyErased removes what was said in messages and answers, and what was made of it in their conversations. What other servers must hear about
// the answers stays until they did.
func (s personEraser) EmptyErased(ctx context.Context, e Erasure) error {
	return s.eachErased(ctx, e, EraseEmpty, EraseTell, func(tx *Tx, turn string) (map[string]int64, error) {
		var route, thread, key string
		found, err := first(ctx, tx, `SELECT route, thread_id, thread_key FROM turns WHERE id = $1`, []any{turn}, &route, &thread, &key)
		if err != nil || !found {
			return nil, err
		}
		if _, err := tx.endOriginal(ctx, turn); err != nil {
			return nil, err
		}
		if err := tx.forgetWith(ctx, turn, func(string) error { return nil }); err != nil {
			return nil, err
		}
		if err := tx.do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, withoutWords(route), turn); err != nil {
			return nil, err
		}

		for _, other := range mustColumn(ctx, tx, &err, `SELECT id FROM turns WHERE thread_key = $1 AND thread_id = $2 AND id <> $3`, key, thread, turn) {
			if err := tx.forgetMade(ctx, other); err != nil {
				return nil, err
			}
		}
		return map[string]int64{"messages": 1}, err
	})
}

// withoutWords is a route without what the message said.
func withoutWords(route string) string {
	notes := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(route), &notes) != nil {
		return "{}"
	}
	delete(notes, exchange.RouteWords)
	for _, words := range []string{"subject", "history", "topic"} {
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
		begun := time.Now()
		page, err := s.ErasedTurns(ctx, e.Receipt.ID, after, retainBatch)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.EndStage(ctx, e.Receipt.ID, stage, next, nil)
		}

		after = page[len(page)-1]
		err = s.InTx(ctx, func(tx *Tx) error {
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
			still, err := tx.progress(ctx, e.Receipt.ID, stage, stage, after, counts)
			if err == nil && !still {
				err = errMoved
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := pace(ctx, begun); err != nil {
			return err
		}
	}
}

// RemoveErased removes the rows of the messages. Decisions about trust stay without who it was.
func (s personEraser) RemoveErased(ctx context.Context, e Erasure, pseudonym string) error {
	return s.eachErased(ctx, e, EraseRemove, EraseContents, func(tx *Tx, turn string) (map[string]int64, error) {
		var err error
		answers := mustColumn(ctx, tx, &err, `SELECT id FROM replies WHERE turn_id = $1`, turn)
		deliveries := mustColumn(ctx, tx, &err, `SELECT id FROM deliveries WHERE turn_id = $1`, turn)
		if err != nil {
			return nil, err
		}
		for _, id := range append(append([]string{turn}, answers...), deliveries...) {
			if err := tx.removeJobsOf(ctx, id); err != nil {
				return nil, err
			}
			if err := tx.do(ctx, `DELETE FROM bridge_items WHERE id = $1`, id); err != nil {
				return nil, err
			}
		}

		audited, err := tx.change(ctx, `UPDATE audit SET principal = $1, detail = '' WHERE turn_id = $2`, pseudonym, turn)
		if err != nil {
			return nil, err
		}
		return map[string]int64{"answers": int64(len(answers)), "deliveries": int64(len(deliveries)), "audit": audited}, tx.erasure().removeTurn(ctx, turn)
	})
}

func (t eraseTx) removeJobsOf(ctx context.Context, payload string) error {
	var err error
	for _, id := range mustColumn(ctx, t, &err, `SELECT id FROM jobs WHERE payload = $1 AND state <> 'running'`, payload) {
		if err := t.jobs().removeWaiting(ctx, id); err != nil {
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

// EraseNames removes everything beside messages that has the names of a person, or is about the messages.
func (s personEraser) EraseNames(ctx context.Context, e Erasure, pseudonym func(string) string) error {
	about, err := s.aboutErased(ctx, e.Receipt.ID)
	if err != nil {
		return err
	}
	counts := map[string]int64{}
	names := e.Person.texts()
	if err := s.eraseSessions(ctx, e, counts); err != nil {
		return err
	}
	if err := s.eraseDocuments(ctx, names, about, counts); err != nil {
		return err
	}
	if err := s.eraseJobs(ctx, names, counts); err != nil {
		return err
	}
	mails, err := mailStore(s).mailsOf(ctx, mailAddresses(e.Person))
	if err != nil {
		return err
	}
	for _, id := range mails { // notices about them go first: a crash leaves the mails, by which they are found again
		about[id] = true
	}
	if err := s.erasePersonRows(ctx, e, names, about, pseudonym, counts); err != nil {
		return err
	}
	deleted, err := mailStore(s).eraseMails(ctx, mails)
	if err != nil {
		return err
	}
	if deleted > 0 {
		counts["mails to the operator"] = deleted
	}
	return s.EndStage(ctx, e.Receipt.ID, EraseNames, EraseRemove, counts)
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
		for _, id := range mustColumn(ctx, s.engine.reader(), &err, query, id) {
			about[id] = true
		}
		if err != nil {
			return nil, err
		}
	}
	return about, nil
}

// eraseSessions deletes the sessions of the person, and those in which only the person spoke.
func (s personEraser) eraseSessions(ctx context.Context, e Erasure, counts map[string]int64) error {
	own := setOf(e.Person.Principals)
	type session struct{ owner, id, agent, thread string }
	var all []session
	err := s.engine.reader().each(ctx, `SELECT owner, id, agent, thread_id FROM sessions ORDER BY owner_key, id`, nil, func(r row) error {
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
	for _, one := range all {
		var turns, erased int64
		if !own[one.owner] {
			if _, err := first(ctx, s.engine.reader(), whose, []any{hashKey(one.agent, one.thread), one.thread, e.Receipt.ID}, &turns, &erased); err != nil {
				return err
			}
			if erased == 0 || erased < turns {
				continue
			}
		}
		err := s.sessions().DeleteSession(ctx, one.owner, one.id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err := s.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, `DELETE FROM bridge_items WHERE session_id = $1`, one.id) }); err != nil {
			return err
		}
		counts["sessions"]++
	}
	return nil
}

// eraseDocuments removes the documents of adapters and agents that name the person or the messages.
func (s personEraser) eraseDocuments(ctx context.Context, names []string, about map[string]bool, counts map[string]int64) error {
	for namespace, key := "", ""; ; {
		begun := time.Now()
		type document struct{ namespace, key, value string }
		var page []document
		rows := 0
		err := s.engine.reader().each(ctx, `SELECT namespace, key, encoding, value FROM documents WHERE (namespace, key) > ($1, $2)
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

		if len(page) > 0 {
			err := s.InTx(ctx, func(tx *Tx) error {
				for _, one := range page {
					for _, digest := range anyDigest.FindAllString(one.value, -1) {
						if err := tx.discard(ctx, digest); err != nil {
							return err
						}
					}
					if err := tx.do(ctx, deleteDocument, one.namespace, one.key); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			counts["documents"] += int64(len(page))
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

// eraseJobs removes work that names the person: letters of agents, notices, calls of webhooks.
func (s personEraser) eraseJobs(ctx context.Context, names []string, counts map[string]int64) error {
	var ids []string
	err := s.engine.reader().each(ctx, `SELECT id, partition_of, reason, payload FROM jobs WHERE state <> 'running'`, nil, func(r row) error {
		var id, partition, reason, payload string
		err := r.Scan(&id, &partition, &reason, &payload)
		if mentions(partition+"\n"+reason+"\n"+payload, names) {
			ids = append(ids, id)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.InTx(ctx, func(tx *Tx) error { return tx.jobs().removeWaiting(ctx, id) }); err != nil {
			return err
		}
		counts["jobs"]++
	}
	return nil
}

// erasePersonRows is about the tables whose rows are a person's by a column of their own.
func (s personEraser) erasePersonRows(ctx context.Context, e Erasure, names []string, about map[string]bool, pseudonym func(string) string, counts map[string]int64) error {
	return s.InTx(ctx, func(tx *Tx) error {
		made := map[string]int64{}
		remove := func(what, query string, arguments ...any) error {
			changed, err := tx.change(ctx, query, arguments...)
			made[what] += changed
			return err
		}

		for _, principal := range e.Person.Principals {
			_, subject, _ := strings.Cut(principal, " ")
			failures := []error{
				remove("links", `DELETE FROM person_identities WHERE principal_key = $1`, hashKey(principal)),
				remove("webhooks", `DELETE FROM watches WHERE principal = $1`, principal),
				remove("runs", `DELETE FROM task_runs WHERE owner = $1`, principal),
				remove("stops", `DELETE FROM list_entries WHERE list = 'stop' AND target = $1`, principal),
				remove("audit", `UPDATE audit SET principal = $1, detail = '' WHERE principal = $2`, pseudonym(principal), principal),
			}
			if id, is := strings.CutPrefix(subject, "token:"); is {
				failures = append(failures, remove("tokens", `DELETE FROM tokens WHERE id = $1`, id))
			}
			for _, err := range failures {
				if err != nil {
					return err
				}
			}
		}

		for _, address := range e.Person.Addresses {
			mail := strings.TrimPrefix(address, "@")
			if err := remove("mail failures", `DELETE FROM mail_failures WHERE address = $1`, mail); err != nil {
				return err
			}
			// Who asked not to be written to is not written to: the address stays as its hash.
			if err := tx.do(ctx, `INSERT INTO mail_suppressions (address, kind, reason, delivery_id, created_at)
				SELECT $1, kind, '', '', created_at FROM mail_suppressions WHERE address = $2 ON CONFLICT (address) DO NOTHING`, ErasedAddress(pseudonym(mail)), mail); err != nil {
				return err
			}
			if err := remove("suppressions kept as a hash", `DELETE FROM mail_suppressions WHERE address = $1`, mail); err != nil {
				return err
			}
		}

		if err := tx.eraseMentions(ctx, names, about, pseudonym("person "+e.Receipt.ID), made); err != nil {
			return err
		}
		if err := tx.do(ctx, `UPDATE list_version SET version = version + 1 WHERE one = 1`); err != nil {
			return err
		}
		tx.wake(ChannelLists, "")
		maps.Copy(counts, made)
		return nil
	})
}

// ErasedAddress is how a suppressed address is kept of which only a hash may be.
func ErasedAddress(hash string) string { return "erased:" + hash }

// mailAddresses are the addresses of a person as mail has them.
func mailAddresses(person PersonNames) []string {
	list := make([]string, len(person.Addresses))
	for i, address := range person.Addresses {
		list[i] = strings.TrimPrefix(address, "@")
	}
	return list
}

// noted are short texts that may name a person who decided, reported or could not be reached.
var noted = []struct {
	table, text string
	keys        []string
	set         string // what the row keeps; empty: it is removed. %s is the person's pseudonym
	ids         bool   // it has words of messages and mails beside their ids
}{
	{"destinations", "destination || ' ' || reason", []string{"channel", "destination"}, "", false},
	{"counters", "counter_key", []string{"counter_key"}, "", false}, // what the person used up of limits
	{"audit", "principal || ' ' || detail", []string{"id"}, "principal = %s, detail = ''", false},
	{"notices", "subject || ' ' || title || ' ' || text || ' ' || body", []string{"id"}, "", true},
	{"notice_tallies", "newest || ' ' || second || ' ' || third", []string{"kind", "subject"}, "newest = '', second = '', third = ''", true},
	{"notice_conditions", "reason", []string{"kind", "subject"}, "reason = ''", true},
}

func (t eraseTx) eraseMentions(ctx context.Context, names []string, about map[string]bool, pseudonym string, made map[string]int64) error {
	for _, rows := range noted {
		var found [][]any
		err := t.each(ctx, `SELECT `+rows.text+`, `+strings.Join(rows.keys, ", ")+` FROM `+rows.table, nil, func(r row) error {
			var text string
			keys := make([]string, len(rows.keys))
			into := []any{&text}
			for i := range keys {
				into = append(into, &keys[i])
			}
			if err := r.Scan(into...); err != nil || !mentions(text, names) && !(rows.ids && slices.ContainsFunc(uuidInText.FindAllString(text, -1), func(id string) bool { return about[id] })) {
				return err
			}
			values := make([]any, len(keys))
			for i, key := range keys {
				values[i] = key
			}
			found = append(found, values)
			return nil
		})
		if err != nil {
			return err
		}

		for _, key := range found {
			where := make([]string, len(key))
			for i := range key {
				where[i] = fmt.Sprintf("%s = $%d", rows.keys[i], i+1)
			}
			query := `DELETE FROM ` + rows.table + ` WHERE ` + strings.Join(where, " AND ")
			if rows.set != "" {
				set := rows.set
				if strings.Contains(set, "%s") {
					key = append(key, pseudonym)
					set = strings.ReplaceAll(set, "%s", fmt.Sprintf("$%d", len(key)))
				}
				query = `UPDATE ` + rows.table + ` SET ` + set + ` WHERE ` + strings.Join(where, " AND ")
			}
			if err := t.do(ctx, query, key...); err != nil {
				return err
			}
			made[rows.table]++
		}
	}
	if err := t.do(ctx, `DELETE FROM notice_ways WHERE notice_id NOT IN (SELECT id FROM notices)`); err != nil {
		return err
	}
	return t.eraseApprover(ctx, names, pseudonym, made)
}

// eraseApprover takes the person out of what was decided about messages of others.
func (t eraseTx) eraseApprover(ctx context.Context, names []string, pseudonym string, made map[string]int64) error {
	type decided struct{ id, resolution, notes string }
	var found []decided
	err := t.each(ctx, `SELECT id, resolution, notes FROM demands WHERE status NOT IN ('issued', 'claimed')`, nil, func(r row) error {
		var one decided
		err := r.Scan(&one.id, &one.resolution, &one.notes)
		if mentions(one.resolution+"\n"+one.notes, names) {
			found = append(found, one)
		}
		return err
	})
	if err != nil {
		return err
	}

	for _, one := range found {
		for _, name := range names {
			pattern, err := regexp.Compile(`(?i)` + regexp.QuoteMeta(name))
			if err != nil {
				return fmt.Errorf("name of a person: %w", err)
			}
			one.resolution, one.notes = pattern.ReplaceAllLiteralString(one.resolution, pseudonym), pattern.ReplaceAllLiteralString(one.notes, pseudonym)
		}
		if err := t.do(ctx, `UPDATE demands SET resolution = $1, notes = $2 WHERE id = $3`, one.resolution, one.notes, one.id); err != nil {
			return err
		}
		made["decisions"]++
	}
	return nil
}

// CleanErased empties the free places of the database's files, and forgets the list of messages. It returns what it could not reach.
func (s personEraser) CleanErased(ctx context.Context, id string) (remains []string, err error) {
	err = s.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, `DELETE FROM erasure_turns WHERE erasure_id = $1`, id) })
	if err != nil {
		return nil, err
	}
	return s.engine.forgetFree(ctx)
}

// AddressForms are the names of a person that an address has: as an address here, and as the subject of evidence that this server checked.
func AddressForms(domain string, address identity.Address) PersonNames {
	written := strings.ToLower(address.String())
	mail := strings.TrimPrefix(written, "@")
	return PersonNames{Principals: []string{domain + " mailto:" + mail, "unverified " + written}, Addresses: []string{written}}
}

// RepeatErasure stores an erasure that was done elsewhere before, under its id, so that it takes what came before it; the running server does it.
// Without names nothing of the person is here, and its receipt is stored alone. It reports whether the erasure was not known.
func (s personEraser) RepeatErasure(ctx context.Context, receipt Receipt, names PersonNames) (fresh bool, err error) {
	person, ended := "", receipt.EndedAt
	if len(names.Principals)+len(names.Addresses) > 0 {
		encoded, err := json.Marshal(names)
		if err != nil {
			return false, fmt.Errorf("encode person: %w", err)
		}
		// Its waits are measured from the moment at which it is wanted.
		receipt.Stage, receipt.RequestedAt, receipt.Counts, receipt.Remains = EraseFind, time.Now().UTC().Truncate(time.Millisecond), map[string]int64{}, nil
		person, ended, receipt.EndedAt = string(encoded), time.Time{}, time.Time{}
	} else if ended.IsZero() {
		receipt.Stage, ended = EraseDone, time.Now().UTC().Truncate(time.Millisecond)
	}
	text, err := json.Marshal(receipt)
	if err != nil {
		return false, fmt.Errorf("encode receipt: %w", err)
	}

	err = s.InTx(ctx, func(tx *Tx) error {
		added, err := tx.change(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
			VALUES ($1, $2, $3, $4, $5, '', $6, $7) ON CONFLICT (id) DO NOTHING`,
			receipt.ID, receipt.Stage, cleaned(receipt.RequestedBy), micros(receipt.RequestedAt), micros(ended), person, string(text))
		fresh = added > 0
		return err
	})
	return fresh, err
}

// namesOfRows are tables with names of persons beside messages: principals and addresses, in the form of PersonNames.
var namesOfRows = []string{
	`SELECT principal, address FROM person_identities`,
	`SELECT owner, '' FROM sessions`,
	`SELECT principal, '' FROM watches`,
	`SELECT owner, '' FROM task_runs`,
	`SELECT '', '@' || sender FROM mails WHERE sender <> ''`,
	`SELECT '', '@' || address FROM mail_failures`,
	`SELECT '', '@' || address FROM mail_suppressions`,
}

// EachName visits the principals and addresses of all persons who are known here, some of them many times; either is empty where a row has not
// both. It reads all messages, in pages.
func (s personEraser) EachName(ctx context.Context, visit func(principal, address string)) error {
	for _, query := range namesOfRows {
		err := s.engine.reader().each(ctx, query, nil, func(r row) error {
			var principal, address string
			err := r.Scan(&principal, &address)
			visit(principal, strings.ToLower(address))
			return err
		})
		if err != nil {
			return err
		}
	}

	for after, more := "", true; more; {
		rows := 0
		err := s.engine.reader().each(ctx, `SELECT id, principal, message FROM turns WHERE id > $1 ORDER BY id LIMIT 1000`, []any{after}, func(r row) error {
			var principal, stored string
			if err := r.Scan(&after, &principal, &stored); err != nil {
				return err
			}
			rows++
			var message struct {
				Sender normalized.Sender `json:"sender"`
			}
			if err := json.Unmarshal([]byte(stored), &message); err != nil {
				return fmt.Errorf("decode message of turn %s: %w", after, err)
			}
			visit(principal, strings.ToLower(message.Sender.Address))
			return nil
		})
		if err != nil {
			return err
		}
		more = rows == 1000
	}
	return nil
}

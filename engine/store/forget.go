package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// erasureStore removes what was said in conversations.
type erasureStore struct{ *shared }

// erasureTx removes what was said in single turns.
type erasureTx struct{ *transaction }

// forgetPage is how many turns one transaction forgets, so that no caller waits long for the writer.
const forgetPage = 50

// notesOfTurns are the namespaces of documents about one turn: what its agent noted, and earlier lines that a summary stands
// for. Their keys begin with the turn's id.
var notesOfTurns = []string{"agents.memory", "agents.archive"}

const selectForgotten = `SELECT id, original_digest FROM turns WHERE thread_key = $1 AND thread_id = $2 AND id > $3
	AND state IN ('answered', 'refused', 'failed', 'silent', 'cancelled') ORDER BY id LIMIT $4 + 0`

// ForgetThread removes what was said in the turns of a thread that have ended: questions, answers, their files and native
// forms, and all that was made of them. The rows stay without text, so that a repeat is recognised and the operator sees that
// there was something. It returns how many turns there are; after a crash it does again what was not finished.
func (s erasureStore) ForgetThread(ctx context.Context, agent, threadID string) (turns int, err error) {
	if !storable(agent) || !storable(threadID) {
		return 0, nil
	}

	for after := ""; ; {
		page, digests, err := s.forgettable(ctx, agent, threadID, after)
		if err != nil {
			return turns, err
		}

		shared, err := s.sharedOriginals(ctx, digests, page)
		if err != nil {
			return turns, err
		}
		if err := s.inBackground(ctx, func(tx *Tx) error { return tx.forgetAll(ctx, page, shared) }); err != nil {
			return turns, err
		}

		if turns += len(page); len(page) < forgetPage {
			if err := s.forgetAncestors(ctx, agent, threadID); err != nil {
				return turns, err
			}
			return turns, s.search().forgetWords(ctx)
		}
		after = page[len(page)-1]
	}
}

// forgetAncestors removes what was said in the thread where this server was not told.
func (s erasureStore) forgetAncestors(ctx context.Context, agent, threadID string) error {
	namespace, key := pipeline.AncestorsOf(agent, threadID)
	value, found, err := s.State().Get(ctx, namespace, key)
	if err != nil || !found {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		removed, err := tx.RemoveDocument(ctx, namespace, key)
		if err != nil || !removed { // by another node, which has noted its contents
			return err
		}
		return tx.discard(ctx, anyDigest.FindAllString(string(value), -1)...)
	})
}

func (s erasureStore) forgettable(ctx context.Context, agent, threadID, after string) (ids, digests []string, err error) {
	arguments := []any{hashKey(agent, threadID), threadID, after, int64(forgetPage)}
	err = s.engine.Reader().Each(ctx, selectForgotten, arguments, func(r row) error {
		var id, digest string
		err := r.Scan(&id, &digest)
		ids, digests = append(ids, id), append(digests, digest)
		return err
	})
	return ids, digests, err
}

// sharedOriginals returns the native forms that other messages have too: clients that say the same send the same bytes. It
// reads the whole table, beside the writer: deletions are rare, and an index would cost every message something.
func (s erasureStore) sharedOriginals(ctx context.Context, digests, ids []string) (map[string]bool, error) {
	shared := map[string]bool{}
	if len(ids) == 0 {
		return shared, nil
	}

	arguments := make([]any, 0, len(digests)+len(ids))
	for _, list := range [][]string{digests, ids} {
		for _, one := range list {
			arguments = append(arguments, one)
		}
	}

	query := `SELECT DISTINCT original_digest FROM turns WHERE original_digest IN (` + placeholders(1, len(digests)) +
		`) AND id NOT IN (` + placeholders(len(digests)+1, len(ids)) + `) AND message NOT LIKE '%"parts":[]%'`
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var digest string
		err := r.Scan(&digest)
		shared[digest] = true
		return err
	})
	return shared, err
}

func (t erasureTx) forgetAll(ctx context.Context, ids []string, shared map[string]bool) error {
	for _, id := range ids {
		if err := t.forget(ctx, id, shared); err != nil {
			return fmt.Errorf("forget turn %s: %w", id, err)
		}
	}
	return nil
}

func (t erasureTx) forget(ctx context.Context, turnID string, shared map[string]bool) error {
	return t.forgetWith(ctx, turnID, func(digest string) error {
		if shared[digest] {
			return nil
		}
		return t.removeOriginal(ctx, digest)
	})
}

// forgetWith does it for one turn; the native form is the caller's. What the adapter knew of it goes too: its notes may tell what was
// said earlier.
func (t erasureTx) forgetWith(ctx context.Context, turnID string, original func(digest string) error) error {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return err
	}
	_, digest, err := t.eraseWords(ctx, turnID, true)
	if err != nil {
		return err
	}

	if err := original(digest); err != nil {
		return err
	}

	if err := t.forgetContext(ctx, turnID); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, `UPDATE turns SET route = '{}', conversation = '', resumed = '', history_turns = 0 WHERE id = $1`, turnID); err != nil {
		return err
	}
	if err := t.forgetReplies(ctx, turnID); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, forgetTakeoverNotes, turnID); err != nil {
		return err
	}

	if err := t.forgetRows(ctx, endedDispatches, endedDispatches.done, turnID); err != nil {
		return err
	}
	const approvals = `purpose = '` + policypart.PurposeApproval + `' AND `
	if err := t.forgetRows(ctx, endedDemands, approvals+endedDemands.done, turnID); err != nil {
		return err
	}

	if err := t.forgetNotes(ctx, turnID); err != nil {
		return err
	}

	t.wake(ChannelTurn, turnID)
	return nil
}

// forgetNotes removes the documents about a turn.
func (t erasureTx) forgetNotes(ctx context.Context, turnID string) error {
	for _, namespace := range notesOfTurns {
		err := t.sql.Do(ctx, `DELETE FROM documents WHERE namespace = $1 AND key >= $2 AND key <= $3`, namespace, turnID, turnID+"/~")
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetContext removes what a client told about where it is; erase keeps the sender.
func (t erasureTx) forgetContext(ctx context.Context, turnID string) error {
	var stored string
	if _, err := first(ctx, t.sql, `SELECT message FROM turns WHERE id = $1`, []any{turnID}, &stored); err != nil {
		return err
	}

	var message normalized.Message
	if err := json.Unmarshal([]byte(stored), &message); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if message.Sender.Profile == nil {
		return nil
	}

	message.Sender.Profile = nil
	body, err := message.AppendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}

	return t.sql.Do(ctx, `UPDATE turns SET message = $1 WHERE id = $2`, string(body), turnID)
}

// forgetReplies leaves answers as deleted ones, so that what still waits to be delivered is given up and files are gone.
func (t erasureTx) forgetReplies(ctx context.Context, turnID string) error {
	kept := map[string]string{}
	err := t.sql.Each(ctx, `SELECT id, response FROM replies WHERE turn_id = $1 AND deleted_at = 0`, []any{turnID}, func(r row) error {
		var id, response string
		err := r.Scan(&id, &response)
		kept[id] = response
		return err
	})
	if err != nil {
		return err
	}

	for id, text := range kept {
		var response normalized.Response
		if err := json.Unmarshal([]byte(text), &response); err != nil {
			return fmt.Errorf("decode response %s: %w", id, err)
		}
		if err := t.discard(ctx, filesOf(response.Parts)...); err != nil {
			return err
		}

		left := normalized.Response{
			InReplyTo: response.InReplyTo, ThreadID: response.ThreadID, Silent: response.Silent, Status: response.Status, Parts: []normalized.Part{},
		}
		body, err := json.Marshal(left)
		if err != nil {
			return fmt.Errorf("encode response %s: %w", id, err)
		}

		if err := t.sql.Do(ctx, `UPDATE replies SET response = $1, deleted_at = $2 WHERE id = $3`, string(body), t.nowMicros(), id); err != nil {
			return err
		}
		if err := t.replies().amendOutcome(ctx, turnID, id, &left); err != nil {
			return err
		}
	}
	return nil
}

// forgetRows removes rows about a turn, with the contents that they refer to.
func (t erasureTx) forgetRows(ctx context.Context, rows ended, which, turnID string) error {
	which = ` FROM ` + rows.table + ` WHERE ` + rows.turn + ` = $1 AND ` + which
	var digests []string
	err := t.sql.Each(ctx, `SELECT `+rows.text+which, []any{turnID}, func(r row) error {
		var content string
		err := r.Scan(&content)
		for _, found := range contentDigest.FindAllStringSubmatch(content, -1) {
			digests = append(digests, found[1])
		}
		return err
	})
	if err != nil {
		return err
	}

	if err := t.discard(ctx, digests...); err != nil {
		return err
	}

	return t.sql.Do(ctx, `DELETE`+which, turnID)
}

// forgetSession removes what was said in a session of an owner, before the session itself goes.
func (s erasureStore) forgetSession(ctx context.Context, owner, id string) error {
	session, found, err := s.sessions().Session(ctx, owner, id)
	if err != nil || !found {
		return err
	}
	_, err = s.ForgetThread(ctx, session.Agent, session.ThreadID)
	return err
}

// The bytes of an original go with the last message that has them. Messages of the same bytes have the same native id.
const (
	selectErased  = `SELECT native_key, original_digest, message FROM turns WHERE id = $1`
	selectSharing = `SELECT COUNT(*) FROM turns WHERE native_key = $1 AND original_digest = $2 AND id <> $3 AND message NOT LIKE '%"parts":[]%'`
)

// erase removes what a question said: its parts, its native form, the parts of before an edit, calls of tools, and what an agent had
// streamed about it when nothing of that was ever an answer. The row stays, with its ids and its sender.
func (t erasureTx) erase(ctx context.Context, turnID string, unanswered bool) error {
	nativeKey, digest, err := t.eraseWords(ctx, turnID, unanswered)
	if err != nil {
		return err
	}
	return t.eraseOriginal(ctx, nativeKey, digest, turnID)
}

// eraseWords is erase without the native form, whose digest it returns.
func (t erasureTx) eraseWords(ctx context.Context, turnID string, unanswered bool) (nativeKey, digest string, err error) {
	var stored string
	if _, err := first(ctx, t.sql, selectErased, []any{turnID}, &nativeKey, &digest, &stored); err != nil {
		return "", "", err
	}
	return nativeKey, digest, t.eraseStored(ctx, turnID, stored, unanswered)
}

func (t erasureTx) eraseStored(ctx context.Context, turnID, stored string, unanswered bool) error {
	var message normalized.Message
	if err := json.Unmarshal([]byte(stored), &message); err != nil {
		return fmt.Errorf("decode message of turn %s: %w", turnID, err)
	}
	if err := t.discard(ctx, filesOf(message.Parts)...); err != nil {
		return err
	}

	if err := t.search().changed(ctx, turnID); err != nil {
		return err
	}

	message.Parts = []normalized.Part{}
	body, err := message.AppendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if err := t.sql.Do(ctx, `UPDATE turns SET message = $1, network = '' WHERE id = $2`, string(body), turnID); err != nil {
		return err
	}

	if err := t.eraseNotes(ctx, turnID); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, `UPDATE events SET body = '' WHERE turn_id = $1 AND kind = $2`, turnID, exchange.EventMessageEdited); err != nil {
		return err
	}

	if unanswered {
		if err := t.sql.Do(ctx, `DELETE FROM events WHERE turn_id = $1 AND kind = $2`, turnID, exchange.EventDelta); err != nil {
			return err
		}
	}

	if err := t.sql.Do(ctx, `DELETE FROM tool_requests WHERE run_id = $1`, turnID); err != nil { // they were made of it
		return err
	}

	if err := t.removeResults(ctx, turnID); err != nil {
		return err
	}

	if err := t.quotas().free(ctx, turnID); err != nil {
		return err
	}

	return t.eraseExcerpts(ctx, turnID, unanswered)
}

// eraseNotes removes what the adapter's notes of a turn have of its words and of earlier ones (exchange.Inbound.Route).
func (t erasureTx) eraseNotes(ctx context.Context, turnID string) error {
	var route string
	if _, err := first(ctx, t.sql, `SELECT route FROM turns WHERE id = $1`, []any{turnID}, &route); err != nil {
		return err
	}

	notes := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(route), &notes) != nil || notes[exchange.RouteWords] == nil && notes[exchange.RouteHistory] == nil && notes[exchange.RouteFormat] == nil {
		return nil //nolint:nilerr // notes that are no object hold no words
	}

	for _, one := range exchange.EarlierIn(json.RawMessage(route)) {
		if err := t.discard(ctx, filesOf(one.Parts)...); err != nil {
			return err
		}
	}
	delete(notes, exchange.RouteWords)
	delete(notes, exchange.RouteHistory)
	delete(notes, exchange.RouteFormat)
	left, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("encode route of turn %s: %w", turnID, err)
	}

	return t.sql.Do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, string(left), turnID)
}

// endBrought puts a line in the place of each file that the sender brought from earlier messages, and reports whether there was one.
func (t *transaction) endBrought(ctx context.Context, turnID string) (bool, error) {
	var route string
	if _, err := first(ctx, t.sql, `SELECT route FROM turns WHERE id = $1`, []any{turnID}, &route); err != nil {
		return false, err
	}

	var digests []string
	earlier := exchange.EarlierIn(json.RawMessage(route))
	for i := range earlier {
		digests = append(digests, filesOf(earlier[i].Parts)...)
		earlier[i].Parts = withoutFiles(earlier[i].Parts)
	}
	if len(digests) == 0 {
		return false, nil
	}
	if err := t.discard(ctx, digests...); err != nil {
		return false, err
	}

	notes := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(route), &notes); err != nil {
		return false, fmt.Errorf("decode route of turn %s: %w", turnID, err)
	}
	history, err := json.Marshal(earlier)
	if err != nil {
		return false, fmt.Errorf("encode history of turn %s: %w", turnID, err)
	}
	notes[exchange.RouteHistory] = history
	left, err := json.Marshal(notes)
	if err != nil {
		return false, fmt.Errorf("encode route of turn %s: %w", turnID, err)
	}
	return true, t.sql.Do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, string(left), turnID)
}

// eraseExcerpts removes what the demands of a turn have of its question, and an answer that was held back and never sent.
func (t erasureTx) eraseExcerpts(ctx context.Context, turnID string, unanswered bool) error {
	kept := map[string]string{}
	err := t.sql.Each(ctx, `SELECT id, notes FROM demands WHERE turn_id = $1`, []any{turnID}, func(r row) error {
		var id, notes string
		err := r.Scan(&id, &notes)
		kept[id] = notes
		return err
	})
	if err != nil {
		return err
	}

	for id, text := range kept {
		notes := map[string]json.RawMessage{}
		if json.Unmarshal([]byte(text), &notes) != nil {
			continue // no notes
		}

		delete(notes, "question")
		delete(notes, "told") // quotes it
		if unanswered {
			delete(notes, "draft")
		}

		body, err := json.Marshal(notes)
		if err != nil {
			return fmt.Errorf("encode notes of demand %s: %w", id, err)
		}
		if err := t.sql.Do(ctx, `UPDATE demands SET notes = $1 WHERE id = $2`, string(body), id); err != nil {
			return err
		}
	}
	return nil
}

func (t erasureTx) eraseOriginal(ctx context.Context, nativeKey, digest, turnID string) error {
	var sharing int64
	if _, err := first(ctx, t.sql, selectSharing, []any{nativeKey, digest, turnID}, &sharing); err != nil || sharing > 0 {
		return err
	}
	return t.removeOriginal(ctx, digest)
}

func (t erasureTx) removeOriginal(ctx context.Context, digest string) error {
	var encoding string
	if found, err := first(ctx, t.sql, deleteOriginal, []any{digest}, &encoding); err != nil || !found || encoding != encodingBlob {
		return err
	}
	return t.discard(ctx, digest)
}

// turnRows are the tables with rows about one turn and the column that names it, in the order in which they are emptied: replies refer to turns,
// deliveries to replies.
var turnRows = [][2]string{
	{"deliveries", "turn_id"}, {"replies", "turn_id"}, {"events", "turn_id"}, {"demands", "turn_id"}, {"dispatches", "turn_id"},
	{"tool_requests", "run_id"}, {"run_results", "turn_id"}, {"task_runs", "turn_id"}, {"turn_parties", "turn_id"}, {"retention_later", "turn_id"},
}

// removeTurn removes all rows of a turn whose words are gone. Payments of its demands stay as long as they count: their rows name no one.
func (t erasureTx) removeTurn(ctx context.Context, turnID string) error {
	if err := t.quotas().free(ctx, turnID); err != nil {
		return err
	}
	for _, rows := range []ended{endedDemands, endedDispatches, endedToolRequests} {
		if err := t.forgetRows(ctx, rows, `1 = 1`, turnID); err != nil {
			return err
		}
	}
	if err := t.removeResults(ctx, turnID); err != nil {
		return err
	}
	if err := t.search().changed(ctx, turnID); err != nil {
		return err
	}
	if err := t.search().forgotten(ctx, turnID); err != nil {
		return err
	}
	for _, rows := range turnRows {
		// Some of their indexes leave out rows of no turn: SQLite uses those only when the statement says that it does.
		if err := t.sql.Do(ctx, `DELETE FROM `+rows[0]+` WHERE `+rows[1]+` = $1 AND `+rows[1]+` <> ''`, turnID); err != nil {
			return err
		}
	}
	if err := t.sql.Do(ctx, removeTakeovers, turnID); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, removeMarksOfThread, turnID); err != nil {
		return err
	}
	return t.sql.Do(ctx, `DELETE FROM turns WHERE id = $1`, turnID)
}

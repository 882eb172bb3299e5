package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/exchange"
	"inbox/normalized"
)

// The bytes of an original go with the last message that has them. Messages of the same bytes have the same native id.
const (
	selectErased  = `SELECT native_key, original_digest, message FROM turns WHERE id = $1`
	selectSharing = `SELECT COUNT(*) FROM turns WHERE native_key = $1 AND original_digest = $2 AND id <> $3 AND message NOT LIKE '%"parts":[]%'`
)

// erase removes what a question said: its parts, its native form, the parts of before an edit, calls of tools, and what an agent had
// streamed about it when nothing of that was ever an answer. The row stays, with its ids and its sender.
func (t *Tx) erase(ctx context.Context, turnID string, unanswered bool) error {
	nativeKey, digest, err := t.eraseWords(ctx, turnID, unanswered)
	if err != nil {
		return err
	}
	return t.eraseOriginal(ctx, nativeKey, digest, turnID)
}

// eraseWords is erase without the native form, whose digest it gives.
func (t *Tx) eraseWords(ctx context.Context, turnID string, unanswered bool) (nativeKey, digest string, err error) {
	var stored string
	if _, err := first(ctx, t, selectErased, []any{turnID}, &nativeKey, &digest, &stored); err != nil {
		return "", "", err
	}
	return nativeKey, digest, t.eraseStored(ctx, turnID, stored, unanswered)
}

func (t *Tx) eraseStored(ctx context.Context, turnID, stored string, unanswered bool) error {
	var message normalized.Message
	if err := json.Unmarshal([]byte(stored), &message); err != nil {
		return fmt.Errorf("decode message of turn %s: %w", turnID, err)
	}
	if err := t.discard(ctx, filesOf(message.Parts)...); err != nil {
		return err
	}
	message.Parts = []normalized.Part{}
	body, err := message.AppendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if err := t.do(ctx, `UPDATE turns SET message = $1, network = '' WHERE id = $2`, string(body), turnID); err != nil {
		return err
	}
	if err := t.eraseNotes(ctx, turnID); err != nil {
		return err
	}
	if err := t.do(ctx, `UPDATE events SET body = '' WHERE turn_id = $1 AND kind = $2`, turnID, exchange.EventMessageEdited); err != nil {
		return err
	}
	if unanswered {
		if err := t.do(ctx, `DELETE FROM events WHERE turn_id = $1 AND kind = $2`, turnID, exchange.EventDelta); err != nil {
			return err
		}
	}
	if err := t.do(ctx, `DELETE FROM tool_requests WHERE run_id = $1`, turnID); err != nil { // they were made of it
		return err
	}
	if err := t.free(ctx, turnID); err != nil {
		return err
	}
	return t.eraseExcerpts(ctx, turnID, unanswered)
}

// eraseNotes removes what the adapter's notes of a turn have of its words (exchange.Inbound.Route).
func (t *Tx) eraseNotes(ctx context.Context, turnID string) error {
	var route string
	if _, err := first(ctx, t, `SELECT route FROM turns WHERE id = $1`, []any{turnID}, &route); err != nil {
		return err
	}
	notes := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(route), &notes) != nil || notes[exchange.RouteWords] == nil {
		return nil //nolint:nilerr // notes that are no object hold no words
	}
	delete(notes, exchange.RouteWords)
	left, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("encode route of turn %s: %w", turnID, err)
	}
	return t.do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, string(left), turnID)
}

// eraseExcerpts removes what the demands of a turn have of its question, and an answer that was held back and never given.
func (t *Tx) eraseExcerpts(ctx context.Context, turnID string, unanswered bool) error {
	kept := map[string]string{}
	err := t.each(ctx, `SELECT id, notes FROM demands WHERE turn_id = $1`, []any{turnID}, func(r row) error {
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
		if unanswered {
			delete(notes, "draft")
		}
		body, err := json.Marshal(notes)
		if err != nil {
			return fmt.Errorf("encode notes of demand %s: %w", id, err)
		}
		if err := t.do(ctx, `UPDATE demands SET notes = $1 WHERE id = $2`, string(body), id); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) eraseOriginal(ctx context.Context, nativeKey, digest, turnID string) error {
	var sharing int64
	if _, err := first(ctx, t, selectSharing, []any{nativeKey, digest, turnID}, &sharing); err != nil || sharing > 0 {
		return err
	}
	return t.removeOriginal(ctx, digest)
}

func (t *Tx) removeOriginal(ctx context.Context, digest string) error {
	var encoding string
	if found, err := first(ctx, t, deleteOriginal, []any{digest}, &encoding); err != nil || !found || encoding != encodingBlob {
		return err
	}
	return t.discard(ctx, digest)
}

package store

import (
	"context"
	"slices"

	"inbox/exchange"
	"inbox/internal/fault"
)

// maxTranscript bounds an imported conversation, in messages and in bytes of all of them together.
const (
	maxTranscript      = 10_000
	maxTranscriptBytes = 16 << 20
)

// ImportSession stores a session with what was said in it elsewhere, all or nothing. The same session with the same
// messages again is no error and does nothing; fault.Conflict when the owner has another one with the id.
func (s *Store) ImportSession(ctx context.Context, session exchange.Session, messages []string) (stored exchange.Session, created bool, err error) {
	if err := checkSession(session); err != nil {
		return stored, false, err
	}
	if err := checkTranscript(messages); err != nil {
		return stored, false, err
	}
	session.Imported = len(messages)
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		if stored, created, err = tx.createSession(ctx, session); err != nil {
			return err
		}
		if !created {
			return tx.sameTranscript(ctx, stored, session, messages)
		}
		for i, message := range messages {
			err := tx.do(ctx, `INSERT INTO session_messages (owner_key, session_id, number, message) VALUES ($1, $2, $3, $4)`,
				hashKey(session.Owner), session.ID, int64(i+1), message)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return stored, created, err
}

func checkTranscript(messages []string) error {
	total := 0
	for _, message := range messages {
		total += len(message)
		if err := requireStorable("messages", message); err != nil {
			return err
		}
	}
	if len(messages) > maxTranscript || total > maxTranscriptBytes {
		return fault.New(fault.TooLarge, "a conversation may have 10,000 messages and 16 MiB")
	}
	return nil
}

func (t *Tx) sameTranscript(ctx context.Context, stored, session exchange.Session, messages []string) error {
	known, err := transcript(ctx, t, session.Owner, session.ID)
	if err == nil && (stored.Agent != session.Agent || !slices.Equal(known, messages)) {
		err = fault.New(fault.Conflict, "there is another session with this id; leave session_id out to get a new one")
	}
	return err
}

// Transcript returns what was imported into a session of the owner, in order.
func (s *Store) Transcript(ctx context.Context, owner, id string) ([]string, error) {
	if !storable(id) {
		return nil, nil
	}
	return transcript(ctx, s.engine.reader(), owner, id)
}

func transcript(ctx context.Context, from querier, owner, id string) (messages []string, err error) {
	err = from.each(ctx, `SELECT message FROM session_messages WHERE owner_key = $1 AND session_id = $2 ORDER BY number`,
		[]any{hashKey(owner), id}, func(r row) error {
			var message string
			err := r.Scan(&message)
			messages = append(messages, message)
			return err
		})
	return messages, err
}

package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// maxSessionID bounds the id of a session in bytes.
const maxSessionID = 255

const (
	sessionColumns = `id, owner, agent, thread_id, title, connector, conversation, imported, created_at, updated_at`
	insertSession  = `INSERT INTO sessions (owner_key, ` + sessionColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
	ON CONFLICT (owner_key, id) DO NOTHING`
	selectSession = `SELECT ` + sessionColumns + ` FROM sessions WHERE owner_key = $1 AND id = $2`
)

// CreateSession stores a session unless its owner has one with the id; it returns the one that is there afterwards and
// whether it is the caller's.
func (s *Store) CreateSession(ctx context.Context, session exchange.Session) (stored exchange.Session, created bool, err error) {
	if err := checkSession(session); err != nil {
		return stored, false, err
	}
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		stored, created, err = tx.createSession(ctx, session)
		return err
	})
	return stored, created, err
}

func checkSession(session exchange.Session) error {
	if session.ID == "" || len(session.ID) > maxSessionID {
		return fault.InField("session_id", "must have 1 to 255 bytes")
	}
	return requireStorable("session_id", session.ID, "owner", session.Owner, "agent", session.Agent, "thread_id", session.ThreadID)
}

func (t *Tx) createSession(ctx context.Context, session exchange.Session) (stored exchange.Session, created bool, err error) {
	inserted, err := t.change(ctx, insertSession, hashKey(session.Owner), session.ID, session.Owner, session.Agent, session.ThreadID,
		cleaned(session.Title), cleaned(session.Connector), cleaned(session.Conversation), int64(session.Imported),
		micros(session.CreatedAt), micros(session.UpdatedAt))
	if err != nil {
		return stored, false, err
	}
	stored, found, err := sessionFrom(ctx, t, session.Owner, session.ID)
	if err == nil && !found {
		err = notFound("session") // it was deleted just now
	}
	return stored, inserted > 0, err
}

func sessionFrom(ctx context.Context, from querier, owner, id string) (session exchange.Session, found bool, err error) {
	err = from.each(ctx, selectSession, []any{hashKey(owner), id}, func(r row) error {
		session, err = scanSession(r)
		found = err == nil
		return err
	})
	return session, found, err
}

func scanSession(r row) (session exchange.Session, err error) {
	var imported, created, updated int64
	err = r.Scan(&session.ID, &session.Owner, &session.Agent, &session.ThreadID, &session.Title, &session.Connector,
		&session.Conversation, &imported, &created, &updated)
	session.Imported, session.CreatedAt, session.UpdatedAt = int(imported), instant(created), instant(updated)
	return session, err
}

// Session returns a session of the owner.
func (s *Store) Session(ctx context.Context, owner, id string) (exchange.Session, bool, error) {
	if !storable(id) {
		return exchange.Session{}, false, nil
	}
	return sessionFrom(ctx, s.engine.reader(), owner, id)
}

// Sessions lists the sessions of an owner, newest update first; fault.Malformed for a cursor that is none.
func (s *Store) Sessions(ctx context.Context, filter exchange.SessionFilter) ([]exchange.Session, error) {
	var chosen selection
	chosen.addWhen(filter.Owner != exchange.AnyOwner, "owner_key = ?", hashKey(filter.Owner))
	chosen.addWhen(filter.Agent != "", "agent = ?", cleaned(filter.Agent))
	if filter.Before != "" {
		at, id, err := readSessionCursor(filter.Before)
		if err != nil {
			return nil, err
		}
		chosen.add("(updated_at, id) < (?, ?)", at, id)
	}
	query := `SELECT ` + sessionColumns + ` FROM sessions` + chosen.sql() + chosen.page("updated_at DESC, id DESC", filter.Limit)
	sessions := []exchange.Session{}
	err := s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		session, err := scanSession(r)
		sessions = append(sessions, session)
		return err
	})
	return sessions, err
}

func readSessionCursor(cursor string) (at int64, id string, err error) {
	instant, id, found := strings.Cut(cursor, ".")
	at, err = strconv.ParseInt(instant, 10, 64)
	if err != nil || !found || !storable(id) {
		return 0, "", fault.InField("cursor", "is no cursor of this list")
	}
	return at, id, nil
}

// RenameSession returns a session of the owner another title; fault.NotFound without it.
func (s *Store) RenameSession(ctx context.Context, owner, id, title string) error {
	return s.changeSession(ctx, `UPDATE sessions SET title = $1 WHERE owner_key = $2 AND id = $3`, cleaned(title), hashKey(owner), cleaned(id))
}

// TouchSession says that something was said in a session; it is no error when there is none.
func (s *Store) TouchSession(ctx context.Context, owner, id string, at time.Time) error {
	err := s.changeSession(ctx, `UPDATE sessions SET updated_at = $1 WHERE owner_key = $2 AND id = $3`, micros(at), hashKey(owner), cleaned(id))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (s *Store) changeSession(ctx context.Context, statement string, arguments ...any) error {
	return s.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.change(ctx, statement, arguments...)
		if err == nil && changed == 0 {
			err = notFound("session")
		}
		return err
	})
}

// DeleteSession removes a session of the owner with what was said in it, what was imported into it and the outside
// conversations that lead to it; fault.NotFound without it. Turns that have not ended keep their text. The session goes
// last: until then the same call does the rest after a crash.
func (s *Store) DeleteSession(ctx context.Context, owner, id string) error {
	key, id := hashKey(owner), cleaned(id)
	if err := s.forgetSession(ctx, owner, id); err != nil {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		removed, err := tx.change(ctx, `DELETE FROM sessions WHERE owner_key = $1 AND id = $2`, key, id)
		if err == nil && removed == 0 {
			err = notFound("session")
		}
		if err != nil {
			return err
		}
		if err := tx.do(ctx, `DELETE FROM session_messages WHERE owner_key = $1 AND session_id = $2`, key, id); err != nil {
			return err
		}
		return tx.do(ctx, `DELETE FROM session_map WHERE owner_key = $1 AND session_id = $2`, key, id)
	})
}

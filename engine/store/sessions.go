package store

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
)

// sessionStore keeps the conversations of chat and connectors.
type sessionStore struct{ *shared }

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
func (s sessionStore) CreateSession(ctx context.Context, session exchange.Session) (stored exchange.Session, created bool, err error) {
	if err := checkSession(session); err != nil {
		return stored, false, err
	}

	err = s.InTx(ctx, func(tx *Tx) (err error) {
		stored, created, err = createSession(ctx, tx, session)
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

func createSession(ctx context.Context, tx *Tx, session exchange.Session) (stored exchange.Session, created bool, err error) {
	inserted, err := tx.sql.Change(ctx, insertSession, hashKey(session.Owner), session.ID, session.Owner, session.Agent, session.ThreadID,
		cleaned(session.Title), cleaned(session.Connector), cleaned(session.Conversation), int64(session.Imported),
		micros(session.CreatedAt), micros(session.UpdatedAt))
	if err != nil {
		return stored, false, err
	}

	stored, found, err := sessionFrom(ctx, tx.sql, session.Owner, session.ID)
	if err == nil && !found {
		err = notFound("session") // it was deleted just now
	}
	return stored, inserted > 0, err
}

func sessionFrom(ctx context.Context, from querier, owner, id string) (session exchange.Session, found bool, err error) {
	err = from.Each(ctx, selectSession, []any{hashKey(owner), id}, func(r row) error {
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
func (s sessionStore) Session(ctx context.Context, owner, id string) (exchange.Session, bool, error) {
	if !storable(id) {
		return exchange.Session{}, false, nil
	}
	return sessionFrom(ctx, s.engine.Reader(), owner, id)
}

// Sessions lists the sessions of an owner, newest update first; fault.Malformed for a cursor that is none.
func (s sessionStore) Sessions(ctx context.Context, filter exchange.SessionFilter) ([]exchange.Session, error) {
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
	err := s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
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

// RenameSession changes the title of a session of the owner; fault.NotFound without it.
func (s sessionStore) RenameSession(ctx context.Context, owner, id, title string) error {
	return s.changeSession(ctx, `UPDATE sessions SET title = $1 WHERE owner_key = $2 AND id = $3`, cleaned(title), hashKey(owner), cleaned(id))
}

// TouchSession records that a session has a new message; it is no error when there is none.
func (s sessionStore) TouchSession(ctx context.Context, owner, id string, at time.Time) error {
	err := s.changeSession(ctx, `UPDATE sessions SET updated_at = $1 WHERE owner_key = $2 AND id = $3`, micros(at), hashKey(owner), cleaned(id))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (s sessionStore) changeSession(ctx context.Context, statement string, arguments ...any) error {
	return s.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.sql.Change(ctx, statement, arguments...)
		if err == nil && changed == 0 {
			err = notFound("session")
		}
		return err
	})
}

// DeleteSession removes a session of the owner with what was said in it, what was imported into it and the outside
// conversations that lead to it; fault.NotFound without it. Turns that have not ended keep their text. The session goes
// last: until then the same call does the rest after a crash.
func (s sessionStore) DeleteSession(ctx context.Context, owner, id string) error {
	key, id := hashKey(owner), cleaned(id)
	if err := s.erasure().forgetSession(ctx, owner, id); err != nil {
		return err
	}

	return s.InTx(ctx, func(tx *Tx) error {
		removed, err := tx.removeSession(ctx, key, id)
		if err == nil && removed == 0 {
			err = notFound("session")
		}
		return err
	})
}

// removeSession removes a session with what is noted of it, and returns how many there were: one or none.
func (t *transaction) removeSession(ctx context.Context, ownerKey, id string) (int64, error) {
	removed, err := t.sql.Change(ctx, `DELETE FROM sessions WHERE owner_key = $1 AND id = $2`, ownerKey, id)
	if err != nil {
		return 0, err
	}
	if err := t.sql.Do(ctx, `DELETE FROM session_messages WHERE owner_key = $1 AND session_id = $2`, ownerKey, id); err != nil {
		return 0, err
	}
	return removed, t.sql.Do(ctx, `DELETE FROM session_map WHERE owner_key = $1 AND session_id = $2`, ownerKey, id)
}

// SessionMap keeps which session each outside conversation of one owner is: contract.Sessions on the database.
type SessionMap struct {
	db    *shared
	owner string
}

// SessionMap returns the map of an owner. Owners never see each other's, whatever they call their connectors.
func (s sessionStore) SessionMap(owner string) *SessionMap { return &SessionMap{s.shared, owner} }

func (m *SessionMap) key(key contract.SessionKey) string {
	return hashKey("key", m.owner, key.Connector, key.Conversation, key.Agent)
}

func (m *SessionMap) importedKey(imported string) string {
	return hashKey("imported", m.owner, imported)
}

// Session implements contract.Sessions.
func (m *SessionMap) Session(ctx context.Context, key contract.SessionKey) (string, error) {
	return m.from(ctx, m.db.engine.Reader(), key)
}

func (m *SessionMap) from(ctx context.Context, from querier, key contract.SessionKey) (session string, err error) {
	for _, known := range []string{m.key(key), m.importedKey(key.Imported())} {
		found, err := first(ctx, from, `SELECT session_id FROM session_map WHERE map_key = $1`, []any{known}, &session)
		if err != nil || found {
			return session, err
		}
	}
	return "", nil
}

const putSessionKey = `INSERT INTO session_map (map_key, owner_key, session_id) VALUES ($1, $2, $3)
	ON CONFLICT (map_key) DO UPDATE SET session_id = excluded.session_id`

// SetSession implements contract.Sessions.
func (m *SessionMap) SetSession(ctx context.Context, key contract.SessionKey, session string) error {
	if session == "" {
		return m.DeleteSession(ctx, key)
	}
	return m.put(ctx, m.key(key), session)
}

// ImportSession implements contract.Sessions.
func (m *SessionMap) ImportSession(ctx context.Context, imported, session string) error {
	if session == "" {
		return nil
	}
	return m.put(ctx, m.importedKey(imported), session)
}

func (m *SessionMap) put(ctx context.Context, key, session string) error {
	if err := requireStorable("session_id", session); err != nil {
		return err
	}
	return m.db.InTx(ctx, func(tx *Tx) error { return tx.sql.Do(ctx, putSessionKey, key, hashKey(m.owner), session) })
}

// DeleteSession implements contract.Sessions.
func (m *SessionMap) DeleteSession(ctx context.Context, key contract.SessionKey) error {
	return m.db.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, `DELETE FROM session_map WHERE map_key IN ($1, $2)`, m.key(key), m.importedKey(key.Imported()))
	})
}

// ChannelSession returns the session of an outside conversation, or makes the given one in the same step. A row of the map
// whose session is gone or is another agent's counts as none.
func (s sessionStore) ChannelSession(ctx context.Context, key contract.SessionKey, fresh exchange.Session) (session exchange.Session, err error) {
	if err := checkSession(fresh); err != nil {
		return session, err
	}
	if err := requireStorable("external_conversation_id", key.Conversation, "connector_id", key.Connector); err != nil {
		return session, err
	}

	mapped := s.SessionMap(fresh.Owner)
	known, found, err := mapped.sessionOf(ctx, s.engine.Reader(), key, fresh)
	if err != nil || found {
		return known, err
	}

	err = s.InTx(ctx, func(tx *Tx) error {
		// The row is taken before it is read, so that of two first messages the second finds the session of the first.
		if _, err := tx.sql.Change(ctx, `INSERT INTO session_map (map_key, owner_key, session_id) VALUES ($1, $2, '') ON CONFLICT (map_key) DO UPDATE
			SET owner_key = excluded.owner_key`, mapped.key(key), hashKey(fresh.Owner)); err != nil {
			return err
		}

		known, found, err := mapped.sessionOf(ctx, tx.sql, key, fresh)
		if err != nil || found {
			session = known
			return err
		}
		if session, _, err = createSession(ctx, tx, fresh); err != nil {
			return err
		}

		return tx.sql.Do(ctx, putSessionKey, mapped.key(key), hashKey(fresh.Owner), fresh.ID)
	})
	return session, err
}

func (m *SessionMap) sessionOf(ctx context.Context, from querier, key contract.SessionKey, fresh exchange.Session) (exchange.Session, bool, error) {
	for _, known := range []string{m.key(key), m.importedKey(key.Imported())} {
		var id string
		if _, err := first(ctx, from, `SELECT session_id FROM session_map WHERE map_key = $1`, []any{known}, &id); err != nil {
			return exchange.Session{}, false, err
		}
		if id == "" {
			continue
		}

		session, found, err := sessionFrom(ctx, from, m.owner, id)
		if err != nil || found && session.Agent == fresh.Agent {
			return session, err == nil, err
		}
	}

	return exchange.Session{}, false, nil
}

// maxTranscript bounds an imported conversation, in messages and in bytes of all of them together.
const (
	maxTranscript      = 10_000
	maxTranscriptBytes = 16 << 20
)

// ImportSession stores a session with what was said in it elsewhere, all or nothing. The same session with the same
// messages again is no error and does nothing; fault.Conflict when the owner has another one with the id.
func (s sessionStore) ImportSession(ctx context.Context, session exchange.Session, messages []string) (stored exchange.Session, created bool, err error) {
	if err := checkSession(session); err != nil {
		return stored, false, err
	}
	if err := checkTranscript(messages); err != nil {
		return stored, false, err
	}

	session.Imported = len(messages)
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		if stored, created, err = createSession(ctx, tx, session); err != nil {
			return err
		}
		if !created {
			return sameTranscript(ctx, tx, stored, session, messages)
		}

		for i, message := range messages {
			err := tx.sql.Do(ctx, `INSERT INTO session_messages (owner_key, session_id, number, message) VALUES ($1, $2, $3, $4)`,
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

func sameTranscript(ctx context.Context, tx *Tx, stored, session exchange.Session, messages []string) error {
	known, err := transcript(ctx, tx.sql, session.Owner, session.ID)
	if err == nil && (stored.Agent != session.Agent || !slices.Equal(known, messages)) {
		err = fault.New(fault.Conflict, "there is another session with this id; leave session_id out to get a new one")
	}
	return err
}

// Transcript returns what was imported into a session of the owner, in order.
func (s sessionStore) Transcript(ctx context.Context, owner, id string) ([]string, error) {
	if !storable(id) {
		return nil, nil
	}
	return transcript(ctx, s.engine.Reader(), owner, id)
}

func transcript(ctx context.Context, from querier, owner, id string) (messages []string, err error) {
	err = from.Each(ctx, `SELECT message FROM session_messages WHERE owner_key = $1 AND session_id = $2 ORDER BY number`,
		[]any{hashKey(owner), id}, func(r row) error {
			var message string
			err := r.Scan(&message)
			messages = append(messages, message)
			return err
		})
	return messages, err
}

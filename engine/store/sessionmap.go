package store

import (
	"context"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
)

// SessionMap keeps which session each outside conversation of one owner is: contract.Sessions on the database.
type SessionMap struct {
	store *Store
	owner string
}

// SessionMap returns the map of an owner. Owners never see each other's, whatever they call their connectors.
func (s *Store) SessionMap(owner string) *SessionMap { return &SessionMap{s, owner} }

func (m *SessionMap) key(key contract.SessionKey) string {
	return hashKey("key", m.owner, key.Connector, key.Conversation, key.Agent)
}

func (m *SessionMap) importedKey(imported string) string {
	return hashKey("imported", m.owner, imported)
}

// Session implements contract.Sessions.
func (m *SessionMap) Session(ctx context.Context, key contract.SessionKey) (string, error) {
	return m.from(ctx, m.store.engine.reader(), key)
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
	return m.store.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, putSessionKey, key, hashKey(m.owner), session) })
}

// DeleteSession implements contract.Sessions.
func (m *SessionMap) DeleteSession(ctx context.Context, key contract.SessionKey) error {
	return m.store.InTx(ctx, func(tx *Tx) error {
		return tx.do(ctx, `DELETE FROM session_map WHERE map_key IN ($1, $2)`, m.key(key), m.importedKey(key.Imported()))
	})
}

// ChannelSession returns the session of an outside conversation, or makes the given one in the same step. A row of the map
// whose session is gone or is another agent's counts as none.
func (s *Store) ChannelSession(ctx context.Context, key contract.SessionKey, fresh exchange.Session) (session exchange.Session, err error) {
	if err := checkSession(fresh); err != nil {
		return session, err
	}
	if err := requireStorable("external_conversation_id", key.Conversation, "connector_id", key.Connector); err != nil {
		return session, err
	}
	mapped := s.SessionMap(fresh.Owner)
	known, found, err := mapped.sessionOf(ctx, s.engine.reader(), key, fresh)
	if err != nil || found {
		return known, err
	}
	err = s.InTx(ctx, func(tx *Tx) error {
		// The row is taken before it is read, so that of two first messages the second finds the session of the first.
		if _, err := tx.change(ctx, `INSERT INTO session_map (map_key, owner_key, session_id) VALUES ($1, $2, '') ON CONFLICT (map_key) DO UPDATE
			SET owner_key = excluded.owner_key`, mapped.key(key), hashKey(fresh.Owner)); err != nil {
			return err
		}
		known, found, err := mapped.sessionOf(ctx, tx, key, fresh)
		if err != nil || found {
			session = known
			return err
		}
		if session, _, err = tx.createSession(ctx, fresh); err != nil {
			return err
		}
		return tx.do(ctx, putSessionKey, mapped.key(key), hashKey(fresh.Owner), fresh.ID)
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

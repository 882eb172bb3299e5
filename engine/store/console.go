package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"inbox/exchange"
)

// consoleStore keeps the browsers in which operators are signed in.
type consoleStore struct{ *shared }

const consoleSessionColumns = `id, hash, name, token_id, subject, members, created_at, seen_at, proven_at, expires_at, address, agent`

const insertConsoleSession = `INSERT INTO console_sessions (` + consoleSessionColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`

// Ids are in the order of their times, so the newest of an owner stand last in the index.
const endOldSessions = `DELETE FROM console_sessions WHERE token_id = $1 AND subject = $2 AND id <=
	(SELECT id FROM console_sessions WHERE token_id = $1 AND subject = $2 ORDER BY id DESC LIMIT 1 OFFSET $3 + 0)`

const endSessionsOfToken = `DELETE FROM console_sessions WHERE token_id = $1`

const sweepConsoleSessions = `DELETE FROM console_sessions WHERE id IN
	(SELECT id FROM console_sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 + 0)`

// CreateConsoleSession stores a session and ends the oldest of its owner beyond most.
func (s consoleStore) CreateConsoleSession(ctx context.Context, session exchange.ConsoleSession, most int) error {
	owner := session.Owner()
	if err := requireStorable("subject", owner.Subject, "hash", session.Hash); err != nil {
		return err
	}
	members, err := json.Marshal(session.Members)
	if err != nil {
		return err
	}

	return s.InTx(ctx, func(tx *Tx) error {
		err := tx.sql.Do(ctx, insertConsoleSession, session.ID, session.Hash, short(session.Name, maxAuditName), owner.TokenID, owner.Subject,
			cleaned(string(members)), micros(session.CreatedAt), micros(session.SeenAt), micros(session.ProvenAt), micros(session.ExpiresAt),
			short(session.Address, maxAuditName), short(session.Agent, maxAuditName))
		if err != nil {
			return err
		}
		return tx.sql.Do(ctx, endOldSessions, owner.TokenID, owner.Subject, int64(most))
	})
}

const selectConsoleSessions = `SELECT s.id, s.hash, s.name, s.token_id, s.subject, s.members, s.created_at, s.seen_at, s.proven_at, s.expires_at,
	s.address, s.agent, t.name, t.scope, t.expires_at, t.revoked_at FROM console_sessions s LEFT JOIN tokens t ON t.id = s.token_id`

// ConsoleSession finds a session by the lower-case hex SHA-256 of its secret, with its token as it is now. Those that are over may
// still be found.
func (s consoleStore) ConsoleSession(ctx context.Context, hash string) (session exchange.ConsoleSession, found bool, err error) {
	err = s.engine.Reader().Each(ctx, selectConsoleSessions+` WHERE s.hash = $1`, []any{cleaned(hash)}, func(r row) (err error) {
		found = true
		session, err = scanConsoleSession(r)
		return err
	})
	return session, found && err == nil, err
}

// ConsoleSessions lists sessions, newest first: of one owner, or of all. Those that are over may still be listed.
func (s consoleStore) ConsoleSessions(ctx context.Context, filter exchange.ConsoleSessionFilter) ([]exchange.ConsoleSession, error) {
	var chosen selection
	if filter.Owner != (exchange.SessionOwner{}) {
		chosen.add("s.token_id = ? AND s.subject = ?", cleaned(filter.Owner.TokenID), cleaned(filter.Owner.Subject))
	}
	chosen.addWhen(filter.Before != "", "s.id < ?", cleaned(filter.Before))

	var sessions []exchange.ConsoleSession
	query := selectConsoleSessions + chosen.sql() + chosen.page("s.id DESC", filter.Limit)
	err := s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		session, err := scanConsoleSession(r)
		sessions = append(sessions, session)
		return err
	})
	return sessions, err
}

func scanConsoleSession(r row) (s exchange.ConsoleSession, err error) {
	var created, seen, proven, expires int64
	var token, members string
	var name, scope sql.NullString
	var tokenExpires, tokenRevoked sql.NullInt64
	err = r.Scan(&s.ID, &s.Hash, &s.Name, &token, &s.Subject, &members, &created, &seen, &proven, &expires, &s.Address, &s.Agent,
		&name, &scope, &tokenExpires, &tokenRevoked)
	if err != nil {
		return s, err
	}

	s.CreatedAt, s.SeenAt, s.ProvenAt, s.ExpiresAt = instant(created), instant(seen), instant(proven), instant(expires)
	if token != "" {
		s.Token = &exchange.Token{ID: token, Name: name.String, Scope: scope.String, ExpiresAt: instant(tokenExpires.Int64), RevokedAt: instant(tokenRevoked.Int64)}
		if !name.Valid {
			s.Token.RevokedAt = s.CreatedAt
		}
	}
	return s, json.Unmarshal([]byte(members), &s.Members)
}

// SeeConsoleSession writes that the browser of a session was seen.
func (s consoleStore) SeeConsoleSession(ctx context.Context, id string, at time.Time) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, `UPDATE console_sessions SET seen_at = $1 WHERE id = $2 AND seen_at < $1`, micros(at), id)
	})
}

// ProveConsoleSession writes that the operator of a session proved anew who they are, and what the settings name of them.
func (s consoleStore) ProveConsoleSession(ctx context.Context, id string, at time.Time, members []string) error {
	list, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, `UPDATE console_sessions SET proven_at = $1, members = $2 WHERE id = $3`, micros(at), cleaned(string(list)), id)
	})
}

// EndConsoleSession ends a session by its id, of one owner or of any; fault.NotFound when there is none.
func (s consoleStore) EndConsoleSession(ctx context.Context, id string, owner exchange.SessionOwner) error {
	query, arguments := `DELETE FROM console_sessions WHERE id = $1`, []any{cleaned(id)}
	if owner != (exchange.SessionOwner{}) {
		query += ` AND token_id = $2 AND subject = $3`
		arguments = append(arguments, owner.TokenID, owner.Subject)
	}

	return s.InTx(ctx, func(tx *Tx) error {
		ended, err := tx.sql.Change(ctx, query, arguments...)
		if err == nil && ended == 0 {
			err = notFound("session of the console")
		}
		return err
	})
}

package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// tokenStore keeps tokens of the API.
type tokenStore struct{ *shared }

// auditStore keeps the audit trail.
type auditStore struct{ *shared }

// auditTx writes audit records in a transaction.
type auditTx struct{ *transaction }

const selectedColumns = `id, name, agent, hash, created_at, revoked_at, scope, expires_at, used_at`

// CreateToken stores a token's hash; fault.Conflict when the hash is there already.
func (s tokenStore) CreateToken(ctx context.Context, token exchange.Token) error {
	if err := requireStorable("name", token.Name, "agent", token.Agent, "hash", token.Hash, "scope", token.Scope); err != nil {
		return err
	}

	return s.InTx(ctx, func(tx *Tx) error {
		inserted, err := tx.sql.Change(ctx, `INSERT INTO tokens (`+selectedColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (hash) DO NOTHING`,
			token.ID, token.Name, token.Agent, token.Hash, micros(token.CreatedAt), micros(token.RevokedAt), token.Scope,
			micros(token.ExpiresAt), micros(token.LastUsedAt))
		if err == nil && inserted == 0 {
			err = fault.New(fault.Conflict, "the token exists already")
		}
		return err
	})
}

// Tokens returns all tokens, newest first.
func (s tokenStore) Tokens(ctx context.Context) ([]exchange.Token, error) {
	var tokens []exchange.Token
	err := s.engine.Reader().Each(ctx, `SELECT `+selectedColumns+` FROM tokens ORDER BY id DESC`, nil, func(r row) error {
		token, err := scanToken(r)
		tokens = append(tokens, token)
		return err
	})
	return tokens, err
}

const removeWatchesOfToken = `DELETE FROM watches WHERE principal LIKE $1` //nolint:gosec // G101: a statement, no credential

// RevokeToken ends a token by its id, with the sessions of the console that it began, the webhooks that were set with it, and the links of
// who it was. All nodes are told. fault.NotFound when it is there no more.
func (s tokenStore) RevokeToken(ctx context.Context, id string) error {
	return s.endToken(ctx, id, `UPDATE tokens SET revoked_at = $1 WHERE id = $2 AND revoked_at = 0`, s.nowMicros(), id)
}

// DeleteToken ends a token as RevokeToken does and removes its row. fault.NotFound when it is there no more.
func (s tokenStore) DeleteToken(ctx context.Context, id string) error {
	return s.endToken(ctx, id, `DELETE FROM tokens WHERE id = $1`, id)
}

func (s tokenStore) endToken(ctx context.Context, id, statement string, arguments ...any) error {
	return s.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.sql.Change(ctx, statement, arguments...)
		if err == nil && changed == 0 {
			err = notFound("valid token")
		}
		if err != nil {
			return err
		}
		if _, err := tx.endLinks(ctx, exchange.LinkFilter{Subject: "token:" + id}, exchange.LinkEnd{Reason: "the token was revoked"}); err != nil {
			return err
		}
		if err := errors.Join(tx.sql.Do(ctx, endSessionsOfToken, id), tx.sql.Do(ctx, removeWatchesOfToken, "% token:"+id)); err != nil {
			return err
		}
		tx.wake(ChannelTokens, "")
		_, err = tx.nextListVersion(ctx) // by which another process on a SQLite file notices it
		return err
	})
}

//nolint:gosec // a statement, no secret
const useToken = `UPDATE tokens SET used_at = $1 WHERE id = $2 AND used_at < $1`

// UseTokens writes when tokens were shown last, by their ids. An earlier time does not replace a later one.
func (s tokenStore) UseTokens(ctx context.Context, used map[string]time.Time) error {
	return s.InTx(ctx, func(tx *Tx) error {
		for _, id := range slices.Sorted(maps.Keys(used)) { // in order, so that two nodes do not wait for each other
			if err := tx.sql.Do(ctx, useToken, micros(used[id]), id); err != nil {
				return err
			}
		}
		return nil
	})
}

const selectToken = `SELECT ` + selectedColumns + ` FROM tokens WHERE hash = $1`

// TokenByHash finds a token by the lower-case hex SHA-256 of its text. A revoked token is found too, with its RevokedAt.
func (s tokenStore) TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error) {
	var token exchange.Token
	found := false
	err := s.engine.Reader().Each(ctx, selectToken, []any{cleaned(hash)}, func(r row) (err error) {
		found = true
		token, err = scanToken(r)
		return err
	})
	return token, found && err == nil, err
}

func scanToken(r row) (exchange.Token, error) {
	var t exchange.Token
	var created, revoked, expires, used int64
	err := r.Scan(&t.ID, &t.Name, &t.Agent, &t.Hash, &created, &revoked, &t.Scope, &expires, &used)
	t.CreatedAt, t.RevokedAt, t.ExpiresAt, t.LastUsedAt = instant(created), instant(revoked), instant(expires), instant(used)
	return t, err
}

// Sizes of an audit record in bytes: what a stranger causes is cut, so that a flood of refusals stays small.
const (
	maxAuditName   = 256
	maxAuditDetail = 1 << 10
)

const auditColumns = `id, at, code, turn_id, agent, principal, detail`

const insertAudit = `INSERT INTO audit (` + auditColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING`

// Audit writes a record. It never refuses one: texts that cannot be kept are mended and long ones cut, because a
// stranger's spelling must not undo the transaction that refuses them. Without id or time it gets its own.
func (t auditTx) Audit(ctx context.Context, record exchange.AuditRecord) error {
	if record.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		record.ID = id.String()
	}

	if strings.HasPrefix(record.Code, "report:") {
		t.count(exchange.NoticeReport, record.Agent, exchange.NoticeExample{ID: record.TurnID, Note: record.Detail})
	}

	return t.sql.Do(ctx, insertAudit, short(record.ID, maxAuditName), t.microsOrNow(record.At), short(record.Code, maxAuditName),
		short(record.TurnID, maxAuditName), short(record.Agent, maxAuditName), short(record.Principal, maxAuditDetail),
		short(record.Detail, maxAuditDetail))
}

// Audit writes a record in its own transaction; see Tx.Audit.
func (s auditStore) Audit(ctx context.Context, record exchange.AuditRecord) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.Audit(ctx, record) })
}

// short makes a text storable and cuts it between two characters.
func short(text string, limit int) string { return clip.Bytes(cleaned(text), limit) }

// AuditRecords lists audit records, newest first, at most 500.
func (s auditStore) AuditRecords(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error) {
	chosen := selectAudit(filter)
	query := `SELECT ` + auditColumns + ` FROM audit` + chosen.sql() + chosen.page("id DESC", filter.Limit)
	var records []exchange.AuditRecord
	err := s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		var a exchange.AuditRecord
		var at int64
		if err := r.Scan(&a.ID, &at, &a.Code, &a.TurnID, &a.Agent, &a.Principal, &a.Detail); err != nil {
			return err
		}

		a.At = instant(at)
		records = append(records, a)
		return nil
	})
	return records, err
}

func selectAudit(f exchange.AuditFilter) *selection {
	var s selection
	prefix, open := strings.CutSuffix(cleaned(f.Code), "*")
	switch {
	case !open:
		s.addWhen(f.Code != "", "code = ?", prefix)
	case prefix != "": // a range, which both databases read from the index; LIKE is not alike in them
		s.add("code >= ? AND code < ?", prefix, prefix+string(utf8.MaxRune))
	}

	s.addWhen(f.TurnID != "", "turn_id = ? AND turn_id <> ''", cleaned(f.TurnID))
	s.addWhen(f.Agent != "", "agent = ?", cleaned(f.Agent))
	s.addWhen(f.Before != "", "id < ?", cleaned(f.Before))
	return &s
}

// act is what an operator does, whose record is written with the first change. After a commit whose outcome is not known the next change
// writes it again.
type act struct {
	record exchange.AuditRecord
	kept   atomic.Bool
}

type actKey struct{}

// WithAct returns a context of what an operator does without a running server between: the first transaction that commits with it writes
// the record, too, so that there is no change without its record. Further changes of the same act write none.
func WithAct(ctx context.Context, record exchange.AuditRecord) context.Context {
	return context.WithValue(ctx, actKey{}, &act{record: record})
}

// actOf returns the act of a context that has no record yet; nil when there is none.
func actOf(ctx context.Context) *act {
	if one, is := ctx.Value(actKey{}).(*act); is && !one.kept.Load() {
		return one
	}
	return nil
}

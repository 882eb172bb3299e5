package store

import (
	"context"

	"inbox/exchange"
	"inbox/internal/fault"
)

const selectedColumns = `id, name, agent, hash, created_at, revoked_at, scope`

// CreateToken stores a token's hash; fault.Conflict when the hash is there already.
func (s *Store) CreateToken(ctx context.Context, token exchange.Token) error {
	if err := requireStorable("name", token.Name, "agent", token.Agent, "hash", token.Hash, "scope", token.Scope); err != nil {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		inserted, err := tx.change(ctx, `INSERT INTO tokens (`+selectedColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (hash) DO NOTHING`,
			token.ID, token.Name, token.Agent, token.Hash, micros(token.CreatedAt), micros(token.RevokedAt), token.Scope)
		if err == nil && inserted == 0 {
			err = fault.New(fault.Conflict, "the token exists already")
		}
		return err
	})
}

// Tokens returns all tokens, newest first.
func (s *Store) Tokens(ctx context.Context) ([]exchange.Token, error) {
	var tokens []exchange.Token
	err := s.engine.reader().each(ctx, `SELECT `+selectedColumns+` FROM tokens ORDER BY id DESC`, nil, func(r row) error {
		token, err := scanToken(r)
		tokens = append(tokens, token)
		return err
	})
	return tokens, err
}

// RevokeToken ends a token by its id; fault.NotFound when there is no valid one.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.change(ctx, `UPDATE tokens SET revoked_at = $1 WHERE id = $2 AND revoked_at = 0`, nowMicros(), id)
		if err == nil && changed == 0 {
			err = notFound("valid token")
		}
		return err
	})
}

const selectToken = `SELECT ` + selectedColumns + ` FROM tokens WHERE hash = $1`

// TokenByHash finds a token by the lower-case hex SHA-256 of its text. A revoked token is found too: RevokedAt says so.
func (s *Store) TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error) {
	var token exchange.Token
	found := false
	err := s.engine.reader().each(ctx, selectToken, []any{cleaned(hash)}, func(r row) (err error) {
		found = true
		token, err = scanToken(r)
		return err
	})
	return token, found && err == nil, err
}

func scanToken(r row) (exchange.Token, error) {
	var t exchange.Token
	var created, revoked int64
	err := r.Scan(&t.ID, &t.Name, &t.Agent, &t.Hash, &created, &revoked, &t.Scope)
	t.CreatedAt, t.RevokedAt = instant(created), instant(revoked)
	return t, err
}

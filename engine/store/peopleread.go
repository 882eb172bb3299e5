package store

import (
	"context"

	"inbox/exchange"
)

const selectPersonOf = `SELECT ` + identityColumns + ` FROM person_identities
	WHERE person_id = (SELECT person_id FROM person_identities WHERE principal_key = $1)
	ORDER BY linked_at, principal LIMIT $2 + 0`

// PersonOf returns all identities of the principal's person, in the order in which they were linked, at most 500; none
// when the principal is not linked.
func (s *Store) PersonOf(ctx context.Context, principal string) ([]exchange.PersonIdentity, error) {
	return s.identities(ctx, selectPersonOf, hashKey(principal), int64(maxPage))
}

// $1 is the cursor; above every id without one.
const selectPeople = `SELECT ` + identityColumns + ` FROM person_identities WHERE person_id IN (
		SELECT DISTINCT person_id FROM person_identities WHERE person_id < $1 ORDER BY person_id DESC LIMIT $2 + 0)
	ORDER BY person_id DESC, linked_at, principal`

// People lists the identities of people, the newest person first; limit counts people, at most 500. Before is the id of
// the last person of the page before.
func (s *Store) People(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error) {
	if before == "" {
		before = "~"
	}
	return s.identities(ctx, selectPeople, cleaned(before), pageSize(limit))
}

func (s *Store) identities(ctx context.Context, query string, arguments ...any) ([]exchange.PersonIdentity, error) {
	var identities []exchange.PersonIdentity
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		var i exchange.PersonIdentity
		var linked int64
		if err := r.Scan(&i.PersonID, &i.Principal, &i.Issuer, &i.Subject, &i.Method, &i.Address, &linked); err != nil {
			return err
		}
		i.LinkedAt = instant(linked)
		identities = append(identities, i)
		return nil
	})
	return identities, err
}

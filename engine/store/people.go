package store

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// personStore finds the linked identities of people.
type personStore struct{ *shared }

// personTx links them in a transaction.
type personTx struct{ *transaction }

const identityColumns = `person_id, principal, issuer, subject, method, address, linked_at`

// An identity that is there already keeps how and when it was proven; the address is as last seen.
const putIdentity = `INSERT INTO person_identities (principal_key, ` + identityColumns + `)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
	ON CONFLICT (principal_key) DO UPDATE SET person_id = excluded.person_id, address = excluded.address`

// LinkPerson makes the identities one person, together with all identities that they were linked to before. The oldest
// person's id stays; without one it is that of the first identity, or a new one. Fewer than two different principals
// are fault.Malformed.
func (t personTx) LinkPerson(ctx context.Context, identities []exchange.PersonIdentity) error {
	keys, err := principalKeys(identities)
	if err != nil {
		return err
	}
	if err := t.holdPeople(ctx); err != nil {
		return err
	}

	people, err := t.peopleOf(ctx, keys)
	if err != nil {
		return err
	}

	person, err := survivor(people, identities)
	if err != nil {
		return err
	}

	for i, identity := range identities {
		if err := t.sql.Do(ctx, putIdentity, keys[i], person, identity.Principal, cleaned(identity.Issuer),
			cleaned(identity.Subject), cleaned(identity.Method), cleaned(identity.Address),
			microsOrNow(identity.LinkedAt)); err != nil {
			return err
		}
	}

	return t.mergePeople(ctx, person, people)
}

func principalKeys(identities []exchange.PersonIdentity) ([]any, error) {
	keys := make([]any, 0, len(identities))
	for _, identity := range identities {
		if err := requireStorable("person_id", identity.PersonID, "principal", identity.Principal); err != nil {
			return nil, err
		}
		if identity.Principal == "" {
			return nil, fault.InField("principal", "is required")
		}

		keys = append(keys, hashKey(identity.Principal))
	}

	if different := slices.Clone(keys); len(different) < 2 || !slices.ContainsFunc(different, func(k any) bool { return k != different[0] }) {
		return nil, fault.InField("identities", "must be two different ones")
	}

	return keys, nil
}

// holdPeople keeps other nodes from linking until the commit: two merges that meet in one person would tear it.
func (t personTx) holdPeople(ctx context.Context) error {
	if t.dialect.holdPeople == "" {
		return nil
	}
	return t.sql.Do(ctx, t.dialect.holdPeople)
}

// peopleOf returns the persons of the principals, oldest first: their ids are UUIDv7.
func (t personTx) peopleOf(ctx context.Context, keys []any) (people []string, err error) {
	query := `SELECT DISTINCT person_id FROM person_identities WHERE principal_key IN (` + placeholders(1, len(keys)) +
		`) ORDER BY person_id`
	err = t.sql.Each(ctx, query, keys, func(r row) error {
		var person string
		err := r.Scan(&person)
		people = append(people, person)
		return err
	})
	return people, err
}

func survivor(people []string, identities []exchange.PersonIdentity) (string, error) {
	if len(people) > 0 {
		return people[0], nil
	}

	for _, identity := range identities {
		if identity.PersonID != "" {
			return identity.PersonID, nil
		}
	}

	id, err := uuid.NewV7()
	return id.String(), err
}

// mergePeople moves the identities of all people to the person.
func (t personTx) mergePeople(ctx context.Context, person string, people []string) error {
	for _, other := range people {
		if other == person {
			continue
		}
		if err := t.sql.Do(ctx, `UPDATE person_identities SET person_id = $1 WHERE person_id = $2`, person, other); err != nil {
			return err
		}
	}
	return nil
}

// Unlink takes an identity from its person; a person that has one left is none any more. fault.NotFound when the
// identity is not linked.
func (s personStore) Unlink(ctx context.Context, principal string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.holdPeople(ctx); err != nil {
			return err
		}
		var person string
		found, err := first(ctx, tx.sql, `DELETE FROM person_identities WHERE principal_key = $1 RETURNING person_id`,
			[]any{hashKey(principal)}, &person)
		if err != nil {
			return err
		}
		if !found {
			return notFound("linked identity")
		}

		return tx.sql.Do(ctx, `DELETE FROM person_identities WHERE person_id = $1
			AND (SELECT COUNT(*) FROM person_identities WHERE person_id = $1) = 1`, person)
	})
}

const selectPersonOf = `SELECT ` + identityColumns + ` FROM person_identities
	WHERE person_id = (SELECT person_id FROM person_identities WHERE principal_key = $1)
	ORDER BY linked_at, principal LIMIT $2 + 0`

// PersonOf returns all identities of the principal's person, in the order in which they were linked, at most 500; none
// when the principal is not linked.
func (s personStore) PersonOf(ctx context.Context, principal string) ([]exchange.PersonIdentity, error) {
	return s.identities(ctx, selectPersonOf, hashKey(principal), int64(maxPage))
}

// $1 is the cursor; above every id without one.
const selectPeople = `SELECT ` + identityColumns + ` FROM person_identities WHERE person_id IN (
		SELECT DISTINCT person_id FROM person_identities WHERE person_id < $1 ORDER BY person_id DESC LIMIT $2 + 0)
	ORDER BY person_id DESC, linked_at, principal`

// People lists the identities of people, the newest person first; limit counts people, at most 500. Before is the id of
// the last person of the page before.
func (s personStore) People(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error) {
	if before == "" {
		before = "~"
	}
	return s.identities(ctx, selectPeople, cleaned(before), pageSize(limit))
}

func (s personStore) identities(ctx context.Context, query string, arguments ...any) ([]exchange.PersonIdentity, error) {
	var identities []exchange.PersonIdentity
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
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

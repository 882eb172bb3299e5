package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/policypart"
)

const selectDemand = `SELECT id, state_hash, turn_id, agent, kind, purpose, status, code_hash, issued_at, expires_at,
	updated_at, terms, resolution, notes FROM demands `

const (
	demandByID    = selectDemand + `WHERE id = $1`
	demandByState = selectDemand + `WHERE state_hash = $1`
	demandOfTurn  = selectDemand + `WHERE turn_id = $1 ORDER BY id DESC LIMIT 1`
	openStatus    = `status IN ('issued', 'claimed')` // as the index demands_open says it
	demandByCode  = selectDemand + `WHERE code_hash = $1 AND code_hash <> '' AND ` + openStatus + ` ORDER BY id DESC LIMIT 1`

	// A claimed demand gets the time that its settlement may take.
	dueDemands = selectDemand + `WHERE ` + openStatus + ` AND expires_at <= $1
		AND (status = 'issued' OR expires_at <= $2) ORDER BY expires_at, id LIMIT $3 + 0`
)

// claimGrace is how long after its expiry a claimed demand may still be settled.
const claimGrace = 2 * time.Minute

// Demand returns one demand; fault.NotFound when there is none.
func (s *Store) Demand(ctx context.Context, id string) (policypart.Issuance, error) {
	demand, found, err := s.demand(ctx, demandByID, id)
	if err == nil && !found {
		err = notFound("demand")
	}
	return demand, err
}

// DemandByState finds a demand by the lower-case hex SHA-256 of its state.
func (s *Store) DemandByState(ctx context.Context, hash string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandByState, hash)
}

// DemandOfTurn returns the newest demand of a turn.
func (s *Store) DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandOfTurn, turnID)
}

// DemandByCode finds the open demand that waits for a word with the hash. It may have expired without having been swept.
func (s *Store) DemandByCode(ctx context.Context, codeHash string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandByCode, codeHash)
}

func (s *Store) demand(ctx context.Context, query, key string) (policypart.Issuance, bool, error) {
	found, err := s.demands(ctx, query, cleaned(key))
	if err != nil || len(found) == 0 {
		return policypart.Issuance{}, false, err
	}
	return found[0], true, nil
}

// DueDemands returns open demands past their expiry, the longest overdue first, at most 500: issued ones at once, claimed
// ones two minutes later.
func (s *Store) DueDemands(ctx context.Context, now time.Time, limit int) ([]policypart.Issuance, error) {
	return s.demands(ctx, dueDemands, micros(now), micros(now.Add(-claimGrace)), pageSize(limit))
}

func (s *Store) demands(ctx context.Context, query string, arguments ...any) ([]policypart.Issuance, error) {
	var demands []policypart.Issuance
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		demand, err := scanDemand(r)
		demands = append(demands, demand)
		return err
	})
	return demands, err
}

func scanDemand(r row) (policypart.Issuance, error) {
	var d policypart.Issuance
	var issued, expires, updated int64
	var terms, resolution, notes string
	if err := r.Scan(&d.ID, &d.StateHash, &d.TurnID, &d.Agent, &d.Kind, &d.Purpose, &d.Status, &d.CodeHash,
		&issued, &expires, &updated, &terms, &resolution, &notes); err != nil {
		return d, err
	}
	d.IssuedAt, d.ExpiresAt, d.UpdatedAt, d.Notes = instant(issued), instant(expires), instant(updated), rawJSON(notes)
	var t demandTerms
	if err := json.Unmarshal([]byte(terms), &t); err != nil {
		return d, fmt.Errorf("decode terms of demand %s: %w", d.ID, err)
	}
	d.ThreadID, d.MessageID, d.Via, d.Principal = t.ThreadID, t.MessageID, t.Via, t.Principal
	d.Asker, d.Part, d.Action = t.Asker, t.Part, t.Action
	if resolution == "" {
		return d, nil
	}
	d.Resolution = new(policypart.Resolution)
	if err := json.Unmarshal([]byte(resolution), d.Resolution); err != nil {
		return d, fmt.Errorf("decode resolution of demand %s: %w", d.ID, err)
	}
	return d, nil
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/internal/fault"
	"inbox/policypart"
)

const insertDemand = `INSERT INTO demands (id, state_hash, turn_id, agent, kind, purpose, status, code_hash, issued_at,
	expires_at, updated_at, terms, resolution, notes)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING`

// InsertDemand stores a demand with its frozen terms. A second one with the same id or state is fault.Conflict; a text
// that PostgreSQL cannot keep is fault.Malformed.
func (t *Tx) InsertDemand(ctx context.Context, d policypart.Issuance) error {
	err := requireStorable("id", d.ID, "state_hash", d.StateHash, "turn_id", d.TurnID, "agent", d.Agent, "kind", d.Kind,
		"purpose", d.Purpose, "status", d.Status, "code_hash", d.CodeHash, "thread_id", d.ThreadID,
		"message_id", d.MessageID, "via", d.Via, "principal", d.Principal, "action", d.Action)
	if err != nil {
		return err
	}
	terms, resolution, err := demandDocuments(d)
	if err != nil {
		return err
	}
	inserted, err := t.change(ctx, insertDemand, d.ID, d.StateHash, d.TurnID, d.Agent, d.Kind, d.Purpose, d.Status,
		d.CodeHash, micros(d.IssuedAt), micros(d.ExpiresAt), micros(d.UpdatedAt), terms, resolution,
		cleaned(string(d.Notes)))
	if err == nil && inserted == 0 {
		err = fault.New(fault.Conflict, "the demand exists already")
	}
	return err
}

// demandTerms is what never changes about a demand and is not looked for.
type demandTerms struct {
	ThreadID  string                `json:"thread_id,omitempty"`
	MessageID string                `json:"message_id,omitempty"`
	Via       string                `json:"via,omitempty"`
	Principal string                `json:"principal,omitempty"`
	Asker     []policypart.Resolver `json:"asker,omitempty"`
	Part      policypart.Part       `json:"part"`
	Action    string                `json:"action,omitempty"`
}

func demandDocuments(d policypart.Issuance) (terms, resolution string, err error) {
	body, err := json.Marshal(demandTerms{d.ThreadID, d.MessageID, d.Via, d.Principal, d.Asker, d.Part, d.Action})
	if err != nil {
		return "", "", fmt.Errorf("encode demand: %w", err)
	}
	resolution, err = encodeResolution(d.Resolution)
	return cleaned(string(body)), resolution, err
}

func encodeResolution(resolution *policypart.Resolution) (string, error) {
	if resolution == nil {
		return "", nil
	}
	body, err := json.Marshal(resolution)
	if err != nil {
		return "", fmt.Errorf("encode resolution: %w", err)
	}
	return cleaned(string(body)), nil
}

// SettleDemand writes status, resolution, notes and turn of the demand when it is in one of the statuses of from: a later
// message may take the place of the turn that waited. Nil notes leave the stored ones. It reports whether it did.
func (t *Tx) SettleDemand(ctx context.Context, d policypart.Issuance, from []string) (bool, error) {
	if len(from) == 0 {
		return false, nil
	}
	if err := requireStorable("id", d.ID, "status", d.Status); err != nil {
		return false, err
	}
	resolution, err := encodeResolution(d.Resolution)
	if err != nil {
		return false, err
	}
	arguments := []any{d.Status, resolution, cleaned(string(d.Notes)), microsOrNow(d.UpdatedAt), cleaned(d.TurnID), d.ID}
	for _, status := range from {
		arguments = append(arguments, status)
	}
	changed, err := t.change(ctx, `UPDATE demands SET status = $1, resolution = $2,
		notes = CASE WHEN $3 = '' THEN notes ELSE $3 END, updated_at = $4,
		turn_id = CASE WHEN $5 = '' THEN turn_id ELSE $5 END
		WHERE id = $6 AND status IN (`+placeholders(7, len(from))+`)`, arguments...)
	if err != nil || changed == 0 || d.Status == policypart.StatusResolved {
		return changed > 0, err
	}
	return true, t.do(ctx, freePayments, d.ID) // nothing is ever taken for a demand that was not met
}

// Notes that are not given stay as they are.
const claimDemand = `UPDATE demands SET status = 'claimed', notes = CASE WHEN $1 = '' THEN notes ELSE $1 END,
	updated_at = $2 WHERE id = $3 AND status = 'issued' AND expires_at > $2`

const (
	selectPayment = `SELECT demand_id FROM demand_payments WHERE payment_key = $1`

	// Whoever comes second waits for the commit of the first, and then reads whose the payment is.
	keepPayment = `INSERT INTO demand_payments (payment_key, demand_id, claimed_at) VALUES ($1, $2, $3)
		ON CONFLICT (payment_key) DO UPDATE SET demand_id = demand_payments.demand_id RETURNING demand_id`

	freePayments = `DELETE FROM demand_payments WHERE demand_id = $1`

	sweepPayments = `DELETE FROM demand_payments WHERE payment_key IN (SELECT payment_key FROM demand_payments
		WHERE claimed_at <= $1 ORDER BY claimed_at LIMIT $2 + 0)`
)

// ClaimDemand takes an open demand for one settlement: of several callers, on any node, one is told true. A demand that
// has expired at now is not claimed. Nil notes leave the stored ones. A payment, named by what can be spent once (empty =
// none), is remembered in the same transaction: fault.Conflict when another demand that is claimed or met has it.
func (s *Store) ClaimDemand(ctx context.Context, id, payment string, notes json.RawMessage, now time.Time) (claimed bool, err error) {
	id = cleaned(id)
	err = s.InTx(ctx, func(tx *Tx) error {
		claimed = false
		if err := tx.paymentIsFree(ctx, selectPayment, id, payment); err != nil { // before anything is changed
			return err
		}
		changed, err := tx.change(ctx, claimDemand, cleaned(string(notes)), micros(now), id)
		if claimed = changed > 0; err != nil || !claimed {
			return err
		}
		return tx.paymentIsFree(ctx, keepPayment, id, payment, id, micros(now))
	})
	return claimed && err == nil, err
}

// paymentIsFree asks a query that returns the demand that has the payment. The more are its arguments after the payment.
func (t *Tx) paymentIsFree(ctx context.Context, query, id, payment string, more ...any) error {
	if payment == "" {
		return nil
	}
	var holder string
	found, err := first(ctx, t, query, append([]any{payment}, more...), &holder)
	if err == nil && found && holder != id {
		err = fault.New(fault.Conflict, "the payment belongs to another demand")
	}
	return err
}

const noteDemand = `UPDATE demands SET notes = $1, updated_at = $2 WHERE id = $3 AND status = $4`

// NoteDemand replaces the notes of a demand that is in the status. It reports whether it did.
func (s *Store) NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error) {
	return s.changeOne(ctx, noteDemand, cleaned(string(notes)), nowMicros(), cleaned(id), cleaned(status))
}

// changeOne runs one conditional update in its own transaction and reports whether it met a row.
func (s *Store) changeOne(ctx context.Context, query string, arguments ...any) (bool, error) {
	var changed int64
	err := s.InTx(ctx, func(tx *Tx) (err error) {
		changed, err = tx.change(ctx, query, arguments...)
		return err
	})
	return err == nil && changed > 0, err
}

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
// message may take the place of the turn that waited. Nil notes leave the stored ones. It says whether it did.
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
	return changed > 0, err
}

// Notes that are not given stay as they are.
const claimDemand = `UPDATE demands SET status = 'claimed', notes = CASE WHEN $1 = '' THEN notes ELSE $1 END,
	updated_at = $2 WHERE id = $3 AND status = 'issued' AND expires_at > $2`

// ClaimDemand takes an open demand for one settlement: of several callers, on any node, one is told true. A demand that
// has expired at now is not claimed. Nil notes leave the stored ones.
func (s *Store) ClaimDemand(ctx context.Context, id string, notes json.RawMessage, now time.Time) (bool, error) {
	return s.changeOne(ctx, claimDemand, cleaned(string(notes)), micros(now), cleaned(id))
}

const noteDemand = `UPDATE demands SET notes = $1, updated_at = $2 WHERE id = $3 AND status = $4`

// NoteDemand replaces the notes of a demand that is in the status. It says whether it did.
func (s *Store) NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error) {
	return s.changeOne(ctx, noteDemand, cleaned(string(notes)), nowMicros(), cleaned(id), cleaned(status))
}

// changeOne runs one conditional update in its own transaction and says whether it met a row.
func (s *Store) changeOne(ctx context.Context, query string, arguments ...any) (bool, error) {
	var changed int64
	err := s.InTx(ctx, func(tx *Tx) (err error) {
		changed, err = tx.change(ctx, query, arguments...)
		return err
	})
	return err == nil && changed > 0, err
}

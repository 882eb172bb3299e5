package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// demandStore finds demands and claims them.
type demandStore struct{ *shared }

// demandTx changes demands in a transaction.
type demandTx struct{ *transaction }

const insertDemand = `INSERT INTO demands (id, state_hash, turn_id, agent, kind, purpose, status, code_hash, issued_at,
	expires_at, updated_at, terms, resolution, notes)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING`

// InsertDemand stores a demand with its frozen terms. A second one with the same id or state is fault.Conflict; a text
// that PostgreSQL cannot keep is fault.Malformed.
func (t demandTx) InsertDemand(ctx context.Context, d policypart.Issuance) error {
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

	inserted, err := t.sql.Change(ctx, insertDemand, d.ID, d.StateHash, d.TurnID, d.Agent, d.Kind, d.Purpose, d.Status,
		d.CodeHash, micros(d.IssuedAt), micros(d.ExpiresAt), micros(d.UpdatedAt), terms, resolution,
		cleaned(string(d.Notes)))
	if err == nil && inserted == 0 {
		err = fault.New(fault.Conflict, "the demand exists already")
	}
	if err == nil && d.Purpose == policypart.PurposeApproval {
		t.count(exchange.NoticeApproval, d.Agent, exchange.NoticeExample{ID: d.ID, Note: d.Part.Approval().Tool})
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
// message may take the place of the turn that waited. An approval is decided only with the code that it has. Nil notes leave the stored ones.
// Unless read is nil, the notes must still be those that the caller read. It reports whether it did.
func (t demandTx) SettleDemand(ctx context.Context, d policypart.Issuance, from []string, read json.RawMessage) (bool, error) {
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

	arguments := []any{d.Status, resolution, cleaned(string(d.Notes)), t.microsOrNow(d.UpdatedAt), cleaned(d.TurnID), d.ID, decidedCode(d), cleaned(string(read))}
	for _, status := range from {
		arguments = append(arguments, status)
	}

	changed, err := t.sql.Change(ctx, `UPDATE demands SET status = $1, resolution = $2,
		notes = CASE WHEN $3 = '' THEN notes ELSE $3 END, updated_at = $4,
		turn_id = CASE WHEN $5 = '' THEN turn_id ELSE $5 END
		WHERE id = $6 AND ($7 = '' OR code_hash = $7) AND ($8 = '' OR notes = $8) AND status IN (`+placeholders(9, len(from))+`)`, arguments...)
	if err != nil || changed == 0 || d.Status == policypart.StatusResolved {
		return changed > 0, err
	}

	return true, t.sql.Do(ctx, freePayments, d.ID) // nothing is ever taken for a demand that was not met
}

const (
	dropDemands = `UPDATE demands SET status = '` + policypart.StatusDropped + `', updated_at = $2 WHERE turn_id = $1 AND status = '` + policypart.StatusIssued + `'`

	freeDropped = `DELETE FROM demand_payments WHERE demand_id IN (SELECT id FROM demands WHERE turn_id = $1 AND status = '` + policypart.StatusDropped + `')`
)

// DropDemands closes the open demands of a turn; see pipeline.Trust.
func (t demandTx) DropDemands(ctx context.Context, turnID string, at time.Time) error {
	dropped, err := t.sql.Change(ctx, dropDemands, turnID, micros(at))
	if err != nil || dropped == 0 {
		return err
	}
	return t.sql.Do(ctx, freeDropped, turnID)
}

// decidedCode returns the code that an approval must still have to be decided: an edit made another one, and with it the
// decision would be about a text that no one read.
func decidedCode(d policypart.Issuance) string {
	if d.Purpose == policypart.PurposeApproval && (d.Status == policypart.StatusResolved || d.Status == policypart.StatusDenied) {
		return cleaned(d.CodeHash)
	}
	return ""
}

// Notes that are empty stay as they are.
const claimDemand = `UPDATE demands SET status = 'claimed', notes = CASE WHEN $1 = '' THEN notes ELSE $1 END,
	updated_at = $2 WHERE id = $3 AND status = 'issued' AND expires_at > $2`

const (
	selectPayment = `SELECT demand_id FROM demand_payments WHERE payment_key = $1`

	// The second caller waits for the commit of the first, and then reads which demand has the payment.
	keepPayment = `INSERT INTO demand_payments (payment_key, demand_id, claimed_at) VALUES ($1, $2, $3)
		ON CONFLICT (payment_key) DO UPDATE SET demand_id = demand_payments.demand_id RETURNING demand_id`

	freePayments = `DELETE FROM demand_payments WHERE demand_id = $1`

	sweepPayments = `DELETE FROM demand_payments WHERE payment_key IN (SELECT payment_key FROM demand_payments
		WHERE claimed_at <= $1 ORDER BY claimed_at LIMIT $2 + 0)`
)

// ClaimDemand takes an open demand for one settlement: of several callers, on any node, one is told true. A demand that
// has expired at now is not claimed. Nil notes leave the stored ones. A payment, named by what can be spent once (empty =
// none), is remembered in the same transaction: fault.Conflict when another demand that is claimed or met has it.
func (s demandStore) ClaimDemand(ctx context.Context, id, payment string, notes json.RawMessage, now time.Time) (claimed bool, err error) {
	id = cleaned(id)
	err = s.InTx(ctx, func(tx *Tx) error {
		claimed = false
		if err := paymentIsFree(ctx, tx, selectPayment, id, payment); err != nil { // before anything is changed
			return err
		}

		changed, err := tx.sql.Change(ctx, claimDemand, cleaned(string(notes)), micros(s.stored(now)), id)
		if claimed = changed > 0; err != nil || !claimed {
			return err
		}

		return paymentIsFree(ctx, tx, keepPayment, id, payment, id, micros(s.stored(now)))
	})
	return claimed && err == nil, err
}

// paymentIsFree asks a query that returns the demand that has the payment. The more are its arguments after the payment.
func paymentIsFree(ctx context.Context, tx *Tx, query, id, payment string, more ...any) error {
	if payment == "" {
		return nil
	}
	var holder string
	found, err := first(ctx, tx.sql, query, append([]any{payment}, more...), &holder)
	if err == nil && found && holder != id {
		err = fault.New(fault.Conflict, "the payment belongs to another demand")
	}
	return err
}

const noteDemand = `UPDATE demands SET notes = $1, updated_at = $2 WHERE id = $3 AND status = $4`

// NoteDemand replaces the notes of a demand that is in the status. It reports whether it did.
func (s demandStore) NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error) {
	return s.changeOne(ctx, noteDemand, cleaned(string(notes)), s.nowMicros(), cleaned(id), cleaned(status))
}

const reviseDemand = `UPDATE demands SET code_hash = $1, notes = $2, updated_at = $3 WHERE id = $4 AND status = 'issued' AND code_hash = $5`

// ReviseDemand replaces the code and the notes of an issued demand that has the code. It reports whether it did.
func (s demandStore) ReviseDemand(ctx context.Context, id, codeHash, newHash string, notes json.RawMessage) (bool, error) {
	return s.changeOne(ctx, reviseDemand, cleaned(newHash), cleaned(string(notes)), s.nowMicros(), cleaned(id), cleaned(codeHash))
}

const selectDemand = `SELECT id, state_hash, turn_id, agent, kind, purpose, status, code_hash, issued_at, expires_at,
	updated_at, terms, resolution, notes FROM demands `

const (
	demandByID    = selectDemand + `WHERE id = $1`
	demandByState = selectDemand + `WHERE state_hash = $1`
	demandOfTurn  = selectDemand + `WHERE turn_id = $1 ORDER BY issued_at DESC, id DESC LIMIT 1` // an id has the time of the turn
	demandsOfTurn = selectDemand + `WHERE turn_id = $1 ORDER BY issued_at, id`
	openStatus    = `status IN ('issued', 'claimed')` // as in the index demands_open
	demandByCode  = selectDemand + `WHERE code_hash = $1 AND code_hash <> '' AND ` + openStatus + ` ORDER BY id DESC LIMIT 1`

	// A claimed demand gets the time that its settlement may take.
	dueDemands = selectDemand + `WHERE ` + openStatus + ` AND expires_at <= $1
		AND (status = 'issued' OR expires_at <= $2) AND (expires_at, id) > ($4, $5) ORDER BY expires_at, id LIMIT $3 + 0`
)

// claimGrace is how long after its expiry a claimed demand may still be settled.
const claimGrace = 2 * time.Minute

// Demand returns one demand; fault.NotFound when there is none.
func (s demandStore) Demand(ctx context.Context, id string) (policypart.Issuance, error) {
	demand, found, err := s.demand(ctx, demandByID, id)
	if err == nil && !found {
		err = notFound("demand")
	}
	return demand, err
}

// DemandByState finds a demand by the lower-case hex SHA-256 of its state.
func (s demandStore) DemandByState(ctx context.Context, hash string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandByState, hash)
}

// DemandOfTurn returns the newest demand of a turn.
func (s demandStore) DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandOfTurn, turnID)
}

// DemandsOfTurn returns all demands of a turn, in their order.
func (s demandStore) DemandsOfTurn(ctx context.Context, turnID string) ([]policypart.Issuance, error) {
	return s.demands(ctx, demandsOfTurn, cleaned(turnID))
}

// DemandByCode finds the open demand that waits for a word with the hash. It may have expired without having been swept.
func (s demandStore) DemandByCode(ctx context.Context, codeHash string) (policypart.Issuance, bool, error) {
	return s.demand(ctx, demandByCode, codeHash)
}

func (s demandStore) demand(ctx context.Context, query, key string) (policypart.Issuance, bool, error) {
	found, err := s.demands(ctx, query, cleaned(key))
	if err != nil || len(found) == 0 {
		return policypart.Issuance{}, false, err
	}
	return found[0], true, nil
}

// DueDemands returns open demands past their expiry, the longest overdue first, at most 500: issued ones at once, claimed
// ones two minutes later. They come after the given one in this order.
func (s demandStore) DueDemands(ctx context.Context, now time.Time, after policypart.Issuance, limit int) ([]policypart.Issuance, error) {
	now = s.stored(now)
	return s.demands(ctx, dueDemands, micros(now), micros(now.Add(-claimGrace)), pageSize(limit), micros(after.ExpiresAt), after.ID)
}

func (s demandStore) demands(ctx context.Context, query string, arguments ...any) ([]policypart.Issuance, error) {
	var demands []policypart.Issuance
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
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

// Approvals lists demands that another principal than their asker decides, newest first, at most 500; the open ones unless
// filter.All. Open ones may have expired without having been swept.
func (s demandStore) Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error) {
	query, arguments := selectApprovals(filter)
	return s.demands(ctx, query, arguments...)
}

func selectApprovals(filter exchange.ApprovalFilter) (query string, arguments []any) {
	query = selectDemand + `WHERE purpose = '` + policypart.PurposeApproval + `'`
	add := func(condition, value string) {
		if value != "" {
			arguments = append(arguments, cleaned(value))
			query += " AND " + condition + " $" + strconv.Itoa(len(arguments))
		}
	}

	id := "id"
	if !filter.All {
		query += ` AND ` + openStatus + ` AND expires_at > 0` // a range of the index demands_open
		id = "id || ''"                                       // few are open: sorting them is cheaper than walking through all demands in order
	}

	if filter.CodeHash != "" {
		query += ` AND code_hash <> ''` // as in the index demands_code
		id = "id || ''"
	}

	add("code_hash =", filter.CodeHash)
	add("agent =", filter.Agent)
	add(id+" <", filter.Before)
	arguments = append(arguments, pageSize(filter.Limit))

	return query + " ORDER BY " + id + " DESC LIMIT $" + strconv.Itoa(len(arguments)) + " + 0", arguments
}

const countDemands = `SELECT COUNT(*) FROM (SELECT 1 FROM demands WHERE ` + openStatus + ` AND expires_at > $1 AND purpose <> '` +
	policypart.PurposeApproval + `' LIMIT $2 + 0) AS counted`

// CountDemands counts the demands that wait for their asker at now, no further than 10,000.
func (s demandStore) CountDemands(ctx context.Context, now time.Time) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), countDemands, []any{micros(s.stored(now)), int64(maxCounted)}, &count)
	return count, err
}

// WaitingDemands lists demands that wait for their asker at now, those that end first first, at most limit and 500. They end after an
// instant, or at it with a larger id than after; what is left of a page ends at the first row of the next one or later.
func (s demandStore) WaitingDemands(ctx context.Context, agent string, ends time.Time, after string, limit int) ([]policypart.Issuance, error) {
	query, arguments := selectWaiting(agent, ends, after, limit)
	return s.demands(ctx, query, arguments...)
}

func selectWaiting(agent string, ends time.Time, after string, limit int) (query string, arguments []any) {
	var chosen selection
	chosen.add(openStatus)
	chosen.add("(expires_at, id) > (?, ?)", micros(ends), cleaned(after))
	chosen.add("purpose <> '" + policypart.PurposeApproval + "'")
	chosen.addWhen(agent != "", "agent = ?", cleaned(agent))
	query = selectDemand + chosen.sql() + chosen.page("expires_at, id", limit)
	return query, chosen.arguments
}

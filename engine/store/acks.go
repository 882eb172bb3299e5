package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/engine/delivery"
	"inbox/exchange"
)

const selectSilentTurn = `SELECT id FROM turns WHERE id = $1 AND reply_id = '' AND (state IN ('` +
	exchange.StateAccepted + `', '` + exchange.StateRunning + `') OR state = '` + exchange.StateWaiting + `' AND reason LIKE '` + exchange.WaitingTool + ` %')`

// InsertAck stores an acknowledgement; see pipeline.AckTx. The turn is held, so that its answer comes before or after.
func (t *Tx) InsertAck(ctx context.Context, reply exchange.Reply, nativeID string) (bool, error) {
	if err := t.holdTurn(ctx, reply.TurnID); err != nil {
		return false, err
	}
	var id string
	silent, err := first(ctx, t, selectSilentTurn, []any{reply.TurnID}, &id)
	if err != nil || !silent {
		return false, err
	}
	reply.Notice = exchange.NoticeAck
	inserted, err := t.insertReply(ctx, reply, nativeID)
	if err != nil || !inserted {
		return false, err
	}
	return true, t.AppendEvents(ctx, reply.TurnID, []exchange.Event{{Kind: exchange.EventAcknowledged, At: reply.CreatedAt}})
}

// ackOvertaken is the reason of a delivery that is needed no more.
const ackOvertaken = "something newer about the message came first"

// A delivery on the wire is cancelled too: when the attempt succeeds it is delivered all the same, and when it fails
// there is no other one.
const cancelAck = `UPDATE deliveries SET state = '` + delivery.StateCancelled + `', reason = $1, updated_at = $2
	WHERE turn_id = $3 AND state IN ('` + delivery.StatePending + `', '` + delivery.StateSending + `', '` + delivery.StateRetry + `')
	AND reply_id IN (SELECT id FROM replies WHERE turn_id = $3 AND notice = $4) RETURNING id, address`

// CancelAck takes the deliveries of an acknowledgement back; see pipeline.AckTx. Rows are taken in the order of
// delivery's own transactions: the delivery, the turn, the job.
func (t *Tx) CancelAck(ctx context.Context, turnID string, at time.Time) error {
	cancelled := map[string]string{} // id → address
	err := t.each(ctx, cancelAck, []any{ackOvertaken, micros(at), turnID, int64(exchange.NoticeAck)}, func(r row) error {
		var id, address string
		err := r.Scan(&id, &address)
		cancelled[id] = address
		return err
	})
	if err != nil {
		return err
	}
	for id, address := range cancelled {
		body, err := json.Marshal(map[string]string{"destination": address, "reason": ackOvertaken})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		event := exchange.Event{Kind: exchange.EventDeliveryCanceled, Body: body, At: at}
		if err := t.AppendEvents(ctx, turnID, []exchange.Event{event}); err != nil {
			return err
		}
		if err := t.removeWaiting(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// removeWaiting removes a job that does not run, so that the next of its partition need not wait for its time.
func (t *Tx) removeWaiting(ctx context.Context, id string) error {
	var kind, partition string
	found, err := first(ctx, t, `DELETE FROM jobs WHERE id = $1 AND state <> 'running' RETURNING kind, partition_key`,
		[]any{id}, &kind, &partition)
	if err != nil || !found {
		return err
	}
	return t.promote(ctx, kind, partition)
}

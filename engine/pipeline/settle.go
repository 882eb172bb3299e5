package pipeline

import (
	"context"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/policypart"
)

// settlement is one demand.Ending made ready for the transaction.
type settlement struct {
	demand.Ending
	turn       exchange.TurnRecord
	reply      exchange.Reply // with Response
	nativeID   string
	deliveries []delivery.Record
	later      bool // this process has no way to the asker: a server that has tells them
}

// Settle ends demands, all of them in one transaction: each demand's row changes, and its parked turn runs again by
// itself or ends with a last word to the asker. Conflict when one of the demands was settled before, or when a turn
// that is to run again does not wait any more: then nothing happened.
func (s *Service) Settle(ctx context.Context, endings ...demand.Ending) error {
	settlements := make([]settlement, 0, len(endings))
	for _, one := range endings {
		prepared, err := s.prepare(ctx, one)
		if err != nil {
			return err
		}
		settlements = append(settlements, prepared)
	}
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		for i := range settlements {
			if err := settlements[i].store(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, one := range settlements {
		s.broker.notify(one.turn.ID)
	}
	return nil
}

// prepare reads the turn and plans the last word.
func (s *Service) prepare(ctx context.Context, ending demand.Ending) (settlement, error) {
	prepared := settlement{Ending: ending}
	turn, err := s.options.Store.Turn(ctx, ending.Issuance.TurnID)
	if err != nil {
		return prepared, err
	}
	prepared.turn = turn
	if ending.Response == nil {
		return prepared, nil
	}
	if prepared.later = s.options.Channels.Empty(); prepared.later {
		return prepared, nil
	}
	prepared.reply = s.newReply(turn, ending.Response.Answering(turn.Message))
	plan, err := s.plan(ctx, prepared.reply)
	if err != nil {
		return prepared, err
	}
	prepared.reply = planned(prepared.reply, plan)
	prepared.nativeID, prepared.deliveries = plan.NativeID, deliveriesOf(prepared.reply, plan)
	return prepared, nil
}

func (p *settlement) store(ctx context.Context, tx Tx) error {
	changed, err := tx.SettleDemand(ctx, p.Issuance, p.From)
	if err != nil {
		return err
	}
	if !changed {
		return fault.New(fault.Conflict, policypart.CodeUsed)
	}
	if len(p.Link) > 0 {
		if err := tx.LinkPerson(ctx, p.Link); err != nil {
			return err
		}
	}
	if err := auditAll(ctx, tx, p.turn.ID, p.Audit); err != nil {
		return err
	}
	switch {
	case p.Resume:
		return p.resume(ctx, tx)
	case p.later:
		return tx.Enqueue(ctx, lastWordJob(p.Issuance))
	case p.Response != nil:
		return p.tell(ctx, tx)
	}
	return nil
}

// resume queues the turn again. The job gets a new id: it runs behind what arrived in the thread meanwhile.
func (p *settlement) resume(ctx context.Context, tx Tx) error {
	moved, err := tx.ResumeTurn(ctx, p.turn.ID, p.Issuance.Resolution, nil, time.Now())
	if err != nil {
		return err
	}
	if !moved {
		return fault.New(fault.Conflict, "the message does not wait any more")
	}
	return tx.Enqueue(ctx, resumedJob(p.turn))
}

func resumedJob(turn exchange.TurnRecord) queue.NewJob {
	again := job(turn)
	again.ID = newID()
	return again
}

// tell ends the turn with the last word. A turn that was cancelled meanwhile hears nothing.
func (p *settlement) tell(ctx context.Context, tx Tx) error {
	moved, err := tx.MoveTurn(ctx, settleTurn.Move(p.turn.ID, p.State, endReason(p.Issuance), p.reply.CreatedAt))
	if err != nil || !moved {
		return err
	}
	if err := tx.InsertReply(ctx, p.reply, p.nativeID); err != nil {
		return err
	}
	return insertDeliveries(ctx, tx, p.reply, p.deliveries)
}

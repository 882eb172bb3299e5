package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// continuation is what a message does to the parked turn that it continues: the person wrote before the demand was met, or
// brings what was demanded. The parked turn is dropped, the new one carries the resolution.
type continuation struct {
	parked exchange.TurnRecord
	ending *demand.Ending // what the message met; nil = it met nothing, the demand is dropped
	drop   func(Tx) error

	word       *exchange.Reply // the last word when the message declined what was demanded: no agent runs
	nativeID   string
	deliveries []delivery.Record
}

// declined reports whether the message declined what was demanded. Its turn then ends with the last word: an agent must
// not take a resolution for a grant.
func (t *continuation) declined() bool {
	return t != nil && t.ending != nil && !t.ending.Resume && t.ending.Response != nil
}

// settleTurn returns the turn of a message that declines its end.
func (t *continuation) settleTurn(turn *exchange.TurnRecord) {
	if t.declined() && turn.State == exchange.StateAccepted {
		turn.State, turn.Reason = t.ending.State, t.ending.Issuance.Kind+" "+t.ending.Issuance.Status
	}
}

// planFinalNotice prepares the answer to a message that declines.
func (s *Service) planFinalNotice(ctx context.Context, t *continuation, turn exchange.TurnRecord) error {
	if !t.declined() {
		return nil
	}
	word := s.newReply(turn, t.ending.Response.Answering(turn.Message))
	word.Response.InReplyTo, word.Response.ThreadID = turn.Message.ID, turn.ThreadID
	plan, err := s.plan(ctx, word)
	word = planned(word, plan)
	t.word, t.nativeID, t.deliveries = &word, plan.NativeID, deliveriesOf(word, plan)
	return err
}

// continues finds the parked turn that a message continues and holds what it offers against the demand; nil when it
// continues none. A message that meets the demand carries the resolution from here on.
func (s *Service) continues(ctx context.Context, agent agents.Entry, in *exchange.Inbound) (*continuation, error) {
	in.Message.PolicyResolution, in.Message.ReceivedTrace = nil, nil // only the engine writes them
	if in.Continues == "" && in.Settlement == nil {
		return nil, nil
	}
	parked, err := s.parkedTurn(ctx, agent, *in)
	if err != nil {
		return nil, err
	}
	taken := &continuation{parked: parked}
	if in.Settlement != nil {
		return taken, s.meet(ctx, taken, in)
	}
	if parked.State != exchange.StateWaiting || exchange.GoesOnByItself(parked) {
		return nil, nil
	}
	taken.drop, err = s.dropDemand(ctx, parked.ID)
	return taken, err
}

// parkedTurn reads the turn that the message continues. Somebody else's is refused as if it were not there.
func (s *Service) parkedTurn(ctx context.Context, agent agents.Entry, in exchange.Inbound) (exchange.TurnRecord, error) {
	if in.Continues == "" {
		return exchange.TurnRecord{}, nil
	}
	parked, err := s.options.Store.Turn(ctx, in.Continues)
	if err != nil {
		return parked, err
	}
	if parked.Agent != agent.Profile.Name || parked.Principal != in.Message.Sender.Principal() {
		return parked, fault.New(fault.NotFound, "there is no such message to continue")
	}
	return parked, nil
}

// meet asks whether the message meets the demand; it then carries the resolution, without the state.
func (s *Service) meet(ctx context.Context, taken *continuation, in *exchange.Inbound) error {
	ending, err := s.options.Demands.Offer(ctx, *in, taken.parked)
	if err != nil {
		return s.refuse(ctx, err, ending.Audit)
	}
	if taken.parked.ID == "" {
		if taken.parked, err = s.options.Store.Turn(ctx, ending.Issuance.TurnID); err != nil {
			return err
		}
	}
	taken.ending = &ending
	in.Message.PolicyResolution = ending.Issuance.Resolution
	return nil
}

// store writes the end of the parked turn into the transaction of the new one.
func (t *continuation) store(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
	if t == nil {
		return nil
	}
	reason := "taken up by the message of turn " + successor.ID
	moved, err := tx.MoveTurn(ctx, continueTurn.Move(t.parked.ID, exchange.StateCancelled, reason, time.Now()))
	switch {
	case err != nil:
		return err
	case !moved:
		return fault.New(fault.Conflict, "the message that this one continues does not wait any more")
	case t.ending == nil:
		return t.drop(tx)
	}
	return t.settle(ctx, tx, successor)
}

func (t *continuation) settle(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
	settled := t.ending.Issuance
	settled.TurnID = successor.ID // the money is taken when this one is answered
	changed, err := tx.SettleDemand(ctx, settled, t.ending.From)
	if err != nil {
		return err
	}
	if !changed {
		return fault.New(fault.Conflict, policypart.CodeUsed)
	}
	if err := auditAll(ctx, tx, successor.ID, t.ending.Audit); err != nil || t.word == nil {
		return err
	}
	if err := tx.InsertReply(ctx, *t.word, t.nativeID); err != nil {
		return err
	}
	return insertDeliveries(ctx, tx, *t.word, t.deliveries)
}

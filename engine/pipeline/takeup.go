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

// takeover is what a message does to the parked turn that it takes up: the person wrote before the demand was met, or
// brings what was demanded. The parked turn is dropped, the new one carries the resolution.
type takeover struct {
	parked exchange.TurnRecord
	ending *demand.Ending // what the message met; nil = it met nothing, the demand is dropped
	drop   func(Tx) error

	word       *exchange.Reply // the last word when the message declined what was demanded: no agent runs
	nativeID   string
	deliveries []delivery.Record
}

// declined says whether the message declined what was demanded. Its turn then ends with the last word: an agent must
// not take a resolution for a grant.
func (t *takeover) declined() bool {
	return t != nil && t.ending != nil && !t.ending.Resume && t.ending.Response != nil
}

// settleTurn gives the turn of a message that declines its end.
func (t *takeover) settleTurn(turn *exchange.TurnRecord) {
	if t.declined() && turn.State == exchange.StateAccepted {
		turn.State, turn.Reason = t.ending.State, t.ending.Issuance.Kind+" "+t.ending.Issuance.Status
	}
}

// planLastWord prepares the answer to a message that declines.
func (s *Service) planLastWord(ctx context.Context, t *takeover, turn exchange.TurnRecord) error {
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

// takeUp finds the parked turn that a message takes up and holds what it offers against the demand; nil when it takes
// up none. A message that meets the demand carries the resolution from here on.
func (s *Service) takeUp(ctx context.Context, agent agents.Entry, in *exchange.Inbound) (*takeover, error) {
	in.Message.PolicyResolution, in.Message.ReceivedTrace = nil, nil // only the engine writes them
	if in.Continues == "" && in.Settlement == nil {
		return nil, nil
	}
	parked, err := s.parkedTurn(ctx, agent, *in)
	if err != nil {
		return nil, err
	}
	taken := &takeover{parked: parked}
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
func (s *Service) meet(ctx context.Context, taken *takeover, in *exchange.Inbound) error {
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
func (t *takeover) store(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
	if t == nil {
		return nil
	}
	moved, err := tx.MoveTurn(ctx, Move{
		ID: t.parked.ID, From: []string{exchange.StateWaiting}, To: exchange.StateCancelled,
		Reason: "taken up by the message of turn " + successor.ID, At: time.Now(),
	})
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

func (t *takeover) settle(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
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

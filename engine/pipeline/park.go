package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// Demands is what the pipeline needs of engine/demand.
type Demands interface {
	// Issue makes the record of a demand that the pipeline stores together with the parked turn. Its Part is what the
	// asker gets. Conflict when the turn has demanded too often.
	Issue(turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, error)
	// Challenge reports whether the message answers an open question about the same person on another network; the part is
	// the demand for consent on this side.
	Challenge(ctx context.Context, turn exchange.TurnRecord) (part policypart.Part, answers bool, err error)
	// Offer holds what a message offers against the open demand of the parked turn: the eight checks. Forbidden with the
	// code when it does not meet it; Ending.Audit is then the row to store.
	Offer(ctx context.Context, in exchange.Inbound, parked exchange.TurnRecord) (demand.Ending, error)
	// Captured returns the response of a run whose payment capture had begun before the process died.
	Captured(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, begun bool, err error)
	Approvals
	// Capture takes the money for a completed response and returns the response to store: the same one, or a failed one.
	Capture(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error)
}

// errNoDemands is met where no service for demands is configured.
var errNoDemands = errors.New("this server is not set up for demands")

// noDemands stands in where Options.Demands is nil.
type noDemands struct{ noApprovals }

func (noDemands) Issue(exchange.TurnRecord, policypart.Part) (policypart.Issuance, error) {
	return policypart.Issuance{}, errNoDemands
}

func (noDemands) Challenge(context.Context, exchange.TurnRecord) (policypart.Part, bool, error) {
	return policypart.Part{}, false, nil
}

func (noDemands) Offer(context.Context, exchange.Inbound, exchange.TurnRecord) (demand.Ending, error) {
	return demand.Ending{}, fault.New(fault.Forbidden, "state:unknown")
}

func (noDemands) Captured(context.Context, exchange.TurnRecord) (response normalized.Response, begun bool, err error) {
	return response, false, nil
}

func (noDemands) Capture(_ context.Context, _ exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	return response, nil
}

// waitingFor is the reason of a parked turn: its first word says for what it waits.
func waitingFor(part policypart.Part) string {
	if part.Code == policypart.CodeApproval || part.Code == policypart.CodeApprovalReply {
		return waitingForApproval(part)
	}
	word := map[string]string{
		policypart.ConsentRequired: "consent", policypart.Unauthorized: "auth", policypart.PaymentRequired: "payment",
	}[part.Kind]
	if part.Code == "" {
		return word
	}
	return word + " (" + part.Code + ")"
}

// park lets a turn wait for its asker: the demand is stored and sent in the transaction that ends the job, so that a
// crash leaves either everything or a turn that runs again. The turn holds no worker while it waits.
func (s *Service) park(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, response normalized.Response) error {
	issuance, err := s.options.Demands.Issue(turn, *response.Policy())
	if err != nil {
		f := fault.GiveUp("the agent's demand cannot be made", err)
		return s.reply(ctx, job, turn, record, failure(turn, f), "issue demand: "+err.Error())
	}
	if issuance.Purpose == policypart.PurposeApproval {
		return s.await(ctx, job, turn, record, issuance)
	}
	parts := append([]normalized.Part(nil), response.Parts...)
	parts[len(parts)-1].Policy = &issuance.Part
	response.Parts, response.To, response.Cc = parts, nil, nil // a demand is for the asker alone
	reply := s.newReply(turn, response)
	reply.Notice = turn.Attempt // no two demands of a turn come from the same run
	return s.conclude(ctx, job, record, ending{
		turn: turn, reply: reply, state: exchange.StateWaiting, reason: waitingFor(issuance.Part),
		more: func(ctx context.Context, tx Tx) error { return tx.InsertDemand(ctx, issuance) },
	})
}

// dropDemand closes the open demand of a turn that nobody waits for any more.
func (s *Service) dropDemand(ctx context.Context, turnID string) (func(Tx) error, error) {
	open, found, err := s.options.Store.DemandOfTurn(ctx, turnID)
	if err != nil {
		return nil, fmt.Errorf("read demand of turn %s: %w", turnID, err)
	}
	if !found {
		return func(Tx) error { return nil }, nil
	}
	open.Status, open.UpdatedAt = policypart.StatusDropped, time.Now()
	return func(tx Tx) error {
		_, err := tx.SettleDemand(ctx, open, []string{policypart.StatusIssued})
		return err
	}, nil
}

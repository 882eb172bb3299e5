package operator

import (
	"context"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/lookup"
)

// Retry runs a failed message again, by any of its ids. Errors are those of Retries.
func (m Messages) Retry(ctx context.Context, id, by string) error {
	turn, err := m.index.Turn(ctx, id)
	if err != nil {
		return err
	}
	return m.Retries.Retry(ctx, turn, by)
}

// Withdraw ends a demand by its id or by any id of its message. Errors are those of DemandEndings.
func (d Demands) Withdraw(ctx context.Context, id, by string) error {
	demand, err := d.index.Demand(ctx, id, "demand")
	if err != nil {
		return err
	}
	return d.DemandEndings.Withdraw(ctx, demand, by)
}

type approvals = Approvals

// foundApprovals are the approvals by any id of their messages, besides their own ids and codes.
type foundApprovals struct {
	approvals

	index *lookup.Index
}

// named calls act with the id of an approval: the given one, or else that of the message which it names.
func (a foundApprovals) named(ctx context.Context, id string, act func(id string) (exchange.Approval, error)) (exchange.Approval, error) {
	_, unknown := a.approvals.Approval(ctx, id)
	if !fault.Is(unknown, fault.NotFound) {
		return act(id)
	}
	if _, err := a.index.Turn(ctx, id); fault.Is(err, fault.NotFound) {
		return exchange.Approval{}, unknown
	}
	approval, err := a.index.Demand(ctx, id, "approval")
	if err != nil {
		return exchange.Approval{}, err
	}
	return act(approval)
}

// Approval implements Approvals.
func (a foundApprovals) Approval(ctx context.Context, id string) (exchange.Approval, error) {
	return a.named(ctx, id, func(id string) (exchange.Approval, error) { return a.approvals.Approval(ctx, id) })
}

// Approvable implements Approvals.
func (a foundApprovals) Approvable(ctx context.Context, id, by string) (exchange.Approval, error) {
	return a.named(ctx, id, func(id string) (exchange.Approval, error) { return a.approvals.Approvable(ctx, id, by) })
}

// Approve implements Approvals.
func (a foundApprovals) Approve(ctx context.Context, id, shown, by string) (exchange.Approval, error) {
	return a.named(ctx, id, func(id string) (exchange.Approval, error) { return a.approvals.Approve(ctx, id, shown, by) })
}

// Deny implements Approvals.
func (a foundApprovals) Deny(ctx context.Context, id, by, reason string) (exchange.Approval, error) {
	return a.named(ctx, id, func(id string) (exchange.Approval, error) { return a.approvals.Deny(ctx, id, by, reason) })
}

// EditReply implements Approvals.
func (a foundApprovals) EditReply(ctx context.Context, id, by, text string) (exchange.Approval, error) {
	return a.named(ctx, id, func(id string) (exchange.Approval, error) { return a.approvals.EditReply(ctx, id, by, text) })
}

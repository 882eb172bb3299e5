package operator

import (
	"context"
	"strings"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
)

// resolver finds the message, or what belongs to one, by any id of a message (Kinds). Every operation that takes an id of a message, an answer,
// a delivery, a demand, an approval or a tool request uses it.
type resolver struct {
	finder Finder
	rows   *store.Store
}

// turn returns the id of the message that an id names. fault.NotFound for none, fault.Conflict with a list where the id fits several.
func (r resolver) turn(ctx context.Context, id string) (string, error) {
	if r.finder == nil { // the caller has the id of a turn
		return id, nil
	}
	kind, turns, err := r.finder.Find(ctx, id)
	if err != nil {
		return "", err
	}
	if len(turns) == 1 {
		return turns[0], nil
	}

	found := make([]exchange.TurnRecord, len(turns))
	for i := range turns {
		if found[i], err = r.rows.Turn(ctx, turns[i]); err != nil {
			return "", err
		}
	}
	ordered, one, err := oneOf(kind, id, found)
	switch {
	case err != nil:
		return "", err
	case !one || idsOfActs[kind]:
		err = ambiguous(id, ordered, func(a, b exchange.TurnRecord) bool { return a.ID == b.ID })
	}
	return ordered[0].ID, err
}

// belonging returns the id of the one thing that belongs to the message which an id names; what is the word for it, and
// unknown the error of an id that names no message, either.
func (r resolver) belonging(ctx context.Context, id, what string, unknown error, of func(turnID string) (ids []string, err error)) (string, error) {
	turn, err := r.turn(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return "", unknown
	}
	if err != nil {
		return "", err
	}
	found, err := of(turn)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fault.Newf(fault.NotFound, "the message %s has no %s", turn, what)
	case len(found) > 1:
		return "", fault.Newf(fault.Conflict, "the message %s has several: give the id of the one that you mean: %s", turn, strings.Join(found, " "))
	}
	return found[0], nil
}

const maxBelonging = 500

func (r resolver) delivery(ctx context.Context, id string) (string, error) {
	var unknown error
	for _, text := range deliveriesIn(id) {
		if _, _, unknown = r.rows.Deliverer().Delivery(ctx, text); !fault.Is(unknown, fault.NotFound) {
			return text, unknown
		}
	}
	return r.belonging(ctx, id, "delivery", unknown, func(turnID string) (ids []string, err error) {
		records, err := r.finder.Deliveries(ctx, delivery.Filter{TurnID: turnID, Limit: maxBelonging})
		for i := range records {
			ids = append(ids, records[i].ID)
		}
		return ids, err
	})
}

func (r resolver) toolRequest(ctx context.Context, id string) (string, error) {
	_, err := r.rows.ToolRequest(ctx, id)
	if !fault.Is(err, fault.NotFound) {
		return id, err
	}
	return r.belonging(ctx, id, "tool request", err, func(turnID string) ([]string, error) {
		for _, all := range []bool{false, true} { // one that waits is meant before those that ended
			requests, err := r.finder.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turnID, All: all, Limit: maxBelonging})
			if err != nil || len(requests) > 0 {
				ids := make([]string, len(requests))
				for i := range requests {
					ids[i] = requests[i].ID
				}
				return ids, err
			}
		}
		return nil, nil
	})
}

// demand returns the id of a demand, or of an approval, which is one that another person decides.
func (r resolver) demand(ctx context.Context, id, what string) (string, error) {
	_, err := r.rows.Demand(ctx, id)
	if !fault.Is(err, fault.NotFound) {
		return id, err
	}
	return r.belonging(ctx, id, what, err, func(turnID string) ([]string, error) {
		newest, found, err := r.rows.DemandOfTurn(ctx, turnID)
		if err != nil || !found {
			return nil, err
		}
		return []string{newest.ID}, nil
	})
}

func (r resolver) reply(ctx context.Context, id string) (string, error) {
	turnID, err := r.turn(ctx, id)
	if err != nil {
		return "", err
	}
	turn, err := r.rows.Turn(ctx, turnID)
	if err == nil && turn.ReplyID == "" {
		err = fault.Newf(fault.NotFound, "the message %s has no answer", turnID)
	}
	return turn.ReplyID, err
}

// Retry runs a failed message again, by any of its ids. Errors are those of Retries.
func (m Messages) Retry(ctx context.Context, id, by string) error {
	turn, err := m.resolve.turn(ctx, id)
	if err != nil {
		return err
	}
	return m.Retries.Retry(ctx, turn, by)
}

// Release lets the agent answer a held message, by any of its ids. Errors are those of HeldDecisions.
func (h Held) Release(ctx context.Context, id string) error {
	turn, err := h.resolve.turn(ctx, id)
	if err != nil {
		return err
	}
	return h.HeldDecisions.Release(ctx, turn)
}

// Drop refuses a held message, by any of its ids. Errors are those of HeldDecisions.
func (h Held) Drop(ctx context.Context, id, reason string) error {
	turn, err := h.resolve.turn(ctx, id)
	if err != nil {
		return err
	}
	return h.HeldDecisions.Drop(ctx, turn, reason)
}

// Restore puts a dropped message back on hold, by any of its ids. It is a fault.Conflict while its sender is blocked; other errors are those of
// HeldDecisions.
func (h Held) Restore(ctx context.Context, id string) error {
	turn, err := h.resolve.turn(ctx, id)
	if err != nil {
		return err
	}
	if h.lists != nil {
		record, err := h.resolve.rows.Turn(ctx, turn)
		if err != nil {
			return err
		}
		verdict, err := h.lists(ctx, record.Message.Sender)
		if err != nil {
			return err
		}
		if verdict.Refused() {
			return fault.Newf(fault.Conflict, "its sender may not write (%s), so the message would be dropped again: change the list first", verdict.Reason)
		}
	}
	return h.HeldDecisions.Restore(ctx, turn)
}

// Withdraw ends a demand by its id or by any id of its message. Errors are those of DemandEndings.
func (d Demands) Withdraw(ctx context.Context, id, by string) error {
	demand, err := d.resolve.demand(ctx, id, "demand")
	if err != nil {
		return err
	}
	return d.DemandEndings.Withdraw(ctx, demand, by)
}

type approvals = Approvals

// foundApprovals are the approvals by any id of their messages, besides their own ids and codes.
type foundApprovals struct {
	approvals

	resolve resolver
}

// named calls act with the id of an approval: the given one, or else that of the message which it names.
func (a foundApprovals) named(ctx context.Context, id string, act func(id string) (exchange.Approval, error)) (exchange.Approval, error) {
	_, unknown := a.approvals.Approval(ctx, id)
	if !fault.Is(unknown, fault.NotFound) {
		return act(id)
	}
	if _, err := a.resolve.turn(ctx, id); fault.Is(err, fault.NotFound) {
		return exchange.Approval{}, unknown
	}
	approval, err := a.resolve.demand(ctx, id, "approval")
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

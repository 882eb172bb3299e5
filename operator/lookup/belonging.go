package lookup

import (
	"context"
	"strings"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Turn returns the id of the message that an id names. fault.NotFound for none, fault.Conflict with a list where the id fits several.
func (x *Index) Turn(ctx context.Context, id string) (string, error) {
	if x == nil { // the caller has the id of a turn
		return id, nil
	}
	kind, turns, err := x.Find(ctx, id)
	if err != nil {
		return "", err
	}
	if len(turns) == 1 {
		return turns[0], nil
	}

	found := make([]exchange.TurnRecord, len(turns))
	for i := range turns {
		if found[i], err = x.rows.Turn(ctx, turns[i]); err != nil {
			return "", err
		}
	}
	ordered, one, err := Order(kind, id, found)
	switch {
	case err != nil:
		return "", err
	case !one || OfActs[kind]:
		err = Unambiguous(id, ordered, func(a, b exchange.TurnRecord) bool { return a.ID == b.ID })
	}
	return ordered[0].ID, err
}

// belonging returns the id of the one thing that belongs to the message which an id names; what is the word for it, and
// unknown the error of an id that names no message, either.
func (x *Index) belonging(ctx context.Context, id, what string, unknown error, of func(turnID string) (ids []string, err error)) (string, error) {
	turn, err := x.Turn(ctx, id)
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

// Delivery returns the id of a delivery, by its own or by any id of its message.
func (x *Index) Delivery(ctx context.Context, id string) (string, error) {
	var unknown error
	for _, text := range deliveriesIn(id) {
		if _, _, unknown = x.rows.Deliverer().Delivery(ctx, text); !fault.Is(unknown, fault.NotFound) {
			return text, unknown
		}
	}
	return x.belonging(ctx, id, "delivery", unknown, func(turnID string) (ids []string, err error) {
		records, err := x.rows.Deliveries(ctx, delivery.Filter{TurnID: turnID, Limit: maxBelonging})
		for i := range records {
			ids = append(ids, records[i].ID)
		}
		return ids, err
	})
}

// ToolRequest returns the id of a request to a tool, by its own or by any id of its message. One that waits is meant before those that ended.
func (x *Index) ToolRequest(ctx context.Context, id string) (string, error) {
	_, err := x.rows.ToolRequest(ctx, id)
	if !fault.Is(err, fault.NotFound) {
		return id, err
	}
	return x.belonging(ctx, id, "tool request", err, func(turnID string) ([]string, error) {
		for _, all := range []bool{false, true} {
			requests, err := x.rows.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turnID, All: all, Limit: maxBelonging})
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

// Demand returns the id of a demand, or of an approval, which is one that another person decides.
func (x *Index) Demand(ctx context.Context, id, what string) (string, error) {
	_, err := x.rows.Demand(ctx, id)
	if !fault.Is(err, fault.NotFound) {
		return id, err
	}
	return x.belonging(ctx, id, what, err, func(turnID string) ([]string, error) {
		newest, found, err := x.rows.DemandOfTurn(ctx, turnID)
		if err != nil || !found {
			return nil, err
		}
		return []string{newest.ID}, nil
	})
}

// Reply returns the id of the answer to a message, by any id of the two.
func (x *Index) Reply(ctx context.Context, id string) (string, error) {
	turnID, err := x.Turn(ctx, id)
	if err != nil {
		return "", err
	}
	turn, err := x.rows.Turn(ctx, turnID)
	if err == nil && turn.ReplyID == "" {
		err = fault.Newf(fault.NotFound, "the message %s has no answer", turnID)
	}
	return turn.ReplyID, err
}

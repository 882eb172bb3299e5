package inbox

import (
	"context"
	"slices"

	"inbox/adapters/activitypub"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Shown is everything that is known about one message.
type Shown struct {
	Turn       exchange.TurnRecord `json:"turn"`
	Deliveries []delivery.Record   `json:"deliveries"`
	Spent      *exchange.Spent     `json:"spent,omitempty"` // what the steps of its agent took; nil when it wrote none
	Events     []exchange.Event    `json:"events"`

	ToolRequests []exchange.ToolRequest `json:"tool_requests,omitempty"` // oldest first
}

// Bounds of a shown timeline: a long answer that streamed has many rows.
const (
	shownPage   = 1000
	shownEvents = 10_000
)

// Show finds a message by turn id, delivery id, the protocol's own id, or the address of a post in the fediverse as people see
// it. NotFound says that nothing was accepted under it.
func (o *Operator) Show(ctx context.Context, id string) (Shown, error) {
	turnID, err := o.find(ctx, id)
	if err != nil {
		return Shown{}, err
	}
	shown := Shown{}
	if shown.Turn, err = o.store.Turn(ctx, turnID); err != nil {
		return shown, err
	}
	if shown.Deliveries, err = o.store.Deliveries(ctx, delivery.Filter{TurnID: turnID, Limit: 500}); err != nil {
		return shown, err
	}
	shown.Deliveries = listed(shown.Deliveries)
	if shown.ToolRequests, err = o.store.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turnID, All: true, Limit: 500}); err != nil {
		return shown, err
	}
	shown.Events, err = o.timeline(ctx, turnID)
	shown.Spent = exchange.SpentBy(shown.Events)
	return shown, err
}

func (o *Operator) timeline(ctx context.Context, turnID string) (events []exchange.Event, err error) {
	for len(events) < shownEvents {
		after := int64(0)
		if last := len(events) - 1; last >= 0 {
			after = events[last].Seq
		}
		page, err := o.store.Events(ctx, turnID, after, shownPage)
		if err != nil {
			return nil, err
		}
		if events = append(events, page...); len(page) < shownPage {
			break
		}
	}
	return events, nil
}

func (o *Operator) find(ctx context.Context, id string) (turnID string, err error) {
	if turn, err := o.store.Turn(ctx, id); err == nil {
		return turn.ID, nil
	} else if !fault.Is(err, fault.NotFound) {
		return "", err
	}
	if record, _, err := o.store.Delivery(ctx, id); err == nil {
		return record.TurnID, nil
	} else if !fault.Is(err, fault.NotFound) {
		return "", err
	}
	if activity, found, err := activitypub.ActivityOf(ctx, o.store.State(), id); err != nil {
		return "", err
	} else if found {
		id = activity
	}
	for _, agent := range o.agents() {
		entry, found, err := o.store.FindMessage(ctx, agent, id)
		if err != nil {
			return "", err
		}
		if found {
			return entry.TurnID, nil
		}
	}
	return "", fault.Newf(fault.NotFound, "no message %s was accepted here", id)
}

// agents gives the names of the configured agents and of those that an embedding program registered.
func (o *Operator) agents() []string {
	names := slices.Clone(o.registered)
	for _, agent := range o.config.Agents {
		names = append(names, agent.Name)
	}
	return names
}

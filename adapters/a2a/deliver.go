package a2a

import (
	"context"

	"inbox/exchange"
	"inbox/internal/fault"
)

var (
	_ exchange.Channel = (*Adapter)(nil)
	_ exchange.Awaited = (*Adapter)(nil)
)

// Plan has no destinations: the peer fetches its answer with the blocking call, the stream or GetTask.
func (a *Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (a *Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("A2A answers are fetched by the peer", nil)
}

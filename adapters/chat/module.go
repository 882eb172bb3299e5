package chat

import (
	"context"
	"encoding/json"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// ChannelName is the name of the channel.
const ChannelName = "chat"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes()}
}

var (
	_ exchange.Historian = (*Adapter)(nil)
	_ exchange.Awaited   = (*Adapter)(nil)
)

// Plan has no destinations: the client fetches its answer.
func (*Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (*Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("answers of a chat are fetched by the client", nil)
}

// Awaits reports that the asker looks at the page, or holds the request open.
func (*Adapter) Awaits(json.RawMessage) bool { return true }

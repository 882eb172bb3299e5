package email

import (
	"inbox/exchange"
	"inbox/normalized"
)

// ChannelName is the name of the channel.
const ChannelName = "email"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaEmail, Channel: a, Policy: a.options.Policy,
		Routes: a.Routes(), Listeners: []exchange.Listener{a}, Opener: a, Links: a.Links,
	}
}

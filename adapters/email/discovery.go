package email

import (
	"inbox/exchange"
	"inbox/identity"
)

// Links gives the agent's mailto link (message contract, section 11).
func (a *Adapter) Links(agent exchange.AgentProfile) []exchange.Link {
	address, err := identity.ParseAddress(agent.Address)
	if err != nil {
		return nil
	}
	return []exchange.Link{{Rel: "mailto", Href: "mailto:" + address.Mail()}}
}

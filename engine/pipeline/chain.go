package pipeline

import (
	"context"
	"fmt"
	"strings"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Codes of the audit records about agents that call agents.
const (
	auditExhausted = "chain:exhausted" // a hop outside the ceiling
	auditStripped  = "chain:stripped"  // the last agent of a chain wanted to go on
	auditPingPong  = "chain:ping_pong" // two agents keep answering each other
	auditTooDeep   = "chain:too_deep"  // they have done so for the whole life of a thread
)

// chain holds a message of a chain of agents to the ceiling: the lower one of the peer and the agent (message contract,
// section 7). A hop outside it is fault.Forbidden with the code chain:exhausted in its public text. What the agent sees
// is the lowered ceiling. A mere hint is left to guard.
func (s *Service) chain(agent agents.Entry, in *exchange.Inbound) error {
	capabilities := &in.Message.RecipientCapabilities
	given := capabilities.AgentChain
	if given == nil || hinted(capabilities.MentionRelay) {
		return nil
	}
	ceiling := min(given.MaxHops, agent.Settings.MaxHops)
	if given.Hop < 1 || given.Hop > ceiling {
		return &fault.Fault{
			Kind: fault.Forbidden, Field: "recipient_capabilities.agent_chain.hop",
			Public: fmt.Sprintf("%s: hop %d is outside 1 to %d; answer without asking this agent", auditExhausted, given.Hop, ceiling),
		}
	}
	capabilities.AgentChain = chainOf(given.Hop, ceiling)
	return nil
}

func chainOf(hop, ceiling int) *normalized.AgentChain {
	return &normalized.AgentChain{Hop: hop, MaxHops: ceiling, IsFinal: hop == ceiling}
}

// hinted reports whether a chain on this way is a hint only: mail and the fediverse, where the envelope wakes the
// recipients, have no place for it that their software keeps. There the hop is also counted by thread.
func hinted(relay normalized.MentionRelay) bool {
	return relay.Kind == normalized.RelayRecipientField || relay.Kind == normalized.RelayAddressing
}

// refuseChain writes the audit record when a message is refused because of its chain, and returns the refusal.
func (s *Service) refuseChain(ctx context.Context, in exchange.Inbound, refusal error) error {
	f := fault.Of(refusal)
	if f.Kind != fault.Forbidden || !strings.HasPrefix(f.Public, auditExhausted) {
		return refusal
	}
	agent := ""
	if address, err := identity.ParseAddress(in.Message.Recipient); err == nil {
		agent = address.Local
	}
	return s.refuse(ctx, refusal, append([]exchange.AuditRecord{auditRow(agent, in, auditExhausted, f.Public)}, disbelief(agent, in)...))
}

// nextHop returns the chain of a call that the turn's agent makes; ok is false when the chain ends here.
func nextHop(agent agents.Entry, turn exchange.TurnRecord) (next normalized.AgentChain, ok bool) {
	hop, ceiling := 0, agent.Settings.MaxHops
	if chain := turn.Message.RecipientCapabilities.AgentChain; chain != nil {
		hop, ceiling = chain.Hop, min(ceiling, chain.MaxHops)
	}
	return *chainOf(hop+1, ceiling), hop < ceiling
}

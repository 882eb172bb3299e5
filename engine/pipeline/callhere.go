package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// here finds the agent of this server behind an address. An address on our domain without an agent is fault.NotFound.
func (s *Service) here(from, to string) (agent agents.Entry, here bool, err error) {
	own, err := identity.ParseAddress(from)
	if err != nil {
		return agent, false, fault.GiveUp("the calling agent has no address", err)
	}
	address, err := identity.ParseAddress(to)
	if err != nil {
		return agent, false, fault.InField("to", "must be @agent@domain")
	}
	if !sameDomain(own.String(), address) {
		return agent, false, nil
	}
	agent, known := s.options.Agents.Lookup(address.Local)
	if !known || !sameDomain(agent.Profile.Address, address) {
		return agent, false, fault.Newf(fault.NotFound, "no agent %s here", to)
	}
	return agent, true, nil
}

// canonical returns the address of one of our agents as it is configured, and any other one as it is.
func (s *Service) canonical(agent agents.Entry, to string) string {
	if callee, here, err := s.here(agent.Profile.Address, to); err == nil && here {
		return callee.Profile.Address
	}
	return to
}

// callHere sends the call through the same door as any message and waits for the answer. The id of the call is that of
// the message: a repeat after a crash finds the turn of the first attempt.
func (s *Service) callHere(ctx context.Context, d exchange.Dispatch, callee agents.Entry) (normalized.Response, error) {
	in, err := s.callOf(d, callee)
	if err != nil {
		return normalized.Response{}, err
	}
	receipt, err := s.Receive(ctx, in)
	if err != nil {
		return normalized.Response{}, err
	}
	hold, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	turn, err := s.Wait(hold, receipt.TurnID)
	if hold.Err() != nil {
		return normalized.Response{}, fault.RetryIn(0, "the agent did not answer in time", errStillRunning)
	}
	if err != nil {
		return normalized.Response{}, fault.RetryIn(0, "the answer cannot be read", err)
	}
	return answerOf(d, turn), nil
}

// fetched is the route of a question whose answer the call reads.
var fetched = json.RawMessage(`{"dispatch":"fetched"}`)

// callOf makes the message of a call to an agent of this server.
func (s *Service) callOf(d exchange.Dispatch, callee agents.Entry) (exchange.Inbound, error) {
	original, err := json.Marshal(struct {
		From  string                `json:"from"`
		To    string                `json:"to"`
		Parts []normalized.Part     `json:"parts"`
		Chain normalized.AgentChain `json:"agent_chain"`
	}{d.From, d.To, d.Parts, d.Chain})
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode call: %w", err)
	}
	chain := d.Chain
	return exchange.Inbound{
		FromAgent: true, Original: original, Channel: exchange.ChannelLocal, Route: fetched,
		Message: normalized.Message{
			ID: d.ID, ThreadID: d.ThreadID, Sender: s.caller(d, callee), Recipient: callee.Profile.Address, Parts: d.Parts,
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}, AgentChain: &chain,
			},
			ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "application/json"},
		},
	}, nil
}

// caller is our own agent as a sender. Nothing went over a wire: what vouches for it is this process, as it does for a
// peer with a token of ours.
func (s *Service) caller(d exchange.Dispatch, callee agents.Entry) normalized.Sender {
	own, _ := identity.ParseAddress(d.From) // here has parsed it
	evidence := identity.Transport(identity.TransportProof{
		Domain: own.Domain, Subject: own.Acct(), Method: identity.MethodLocalAgent, Assurance: identity.AssuranceAgent,
		Recipient: callee.Profile.Address, IssuedAt: d.CreatedAt,
	})
	evidence.OnBehalfOf = onBehalfOf(d.Sender)
	sender := normalized.Sender{
		Address: d.From, AuthMethod: normalized.AuthA2AOAuth, Verified: true, Identities: []identity.Evidence{evidence},
	}
	if agent, known := s.options.Agents.Lookup(d.Agent); known {
		sender.DisplayName = agent.Profile.DisplayName
	}
	return sender
}

// onBehalfOf names for whom an agent acts: those for whom the sender acted, upstream first, then the sender. Who proved
// nothing is not named.
func onBehalfOf(sender normalized.Sender) []string {
	if len(sender.Identities) == 0 {
		return nil
	}
	proven := sender.Identities[0]
	subjects := slices.Clone(proven.OnBehalfOf)
	if !slices.Contains(subjects, proven.Subject) {
		subjects = append(subjects, proven.Subject)
	}
	return subjects[:min(len(subjects), identity.MaxEvidence)]
}

// answerOf reads the answer of an agent of this server off its turn. What it demands, or who must let the question in,
// is the answer: the calling agent is the one who was asked.
func answerOf(d exchange.Dispatch, turn exchange.TurnRecord) normalized.Response {
	switch {
	case turn.State == exchange.StateSilent:
		return normalized.Response{Silent: true}
	case turn.State == exchange.StateHeld:
		return failedCall(d, "dispatch:held", d.To+" does not answer before its operator lets the question in.")
	case turn.Response == nil:
		return failedCall(d, "dispatch:"+turn.State, d.To+" did not answer.")
	}
	answer := *turn.Response
	if turn.State == exchange.StateWaiting {
		answer.Status = normalized.StatusInputRequired
	}
	return answer
}

// deadlineOf is when a call is given up.
func deadlineOf(d exchange.Dispatch) time.Time { return d.CreatedAt.Add(callWithin) }

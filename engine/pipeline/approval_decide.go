package pipeline

import (
	"context"
	"errors"

	"inbox/agents"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// errOvertaken says that somebody else decided while a decision was being stored: nothing of it was.
var errOvertaken = errors.New("somebody else was faster")

// maxDecisions bounds how often a decision is held against what is open now.
const maxDecisions = 3

// mayDecide lets a decision of an approver in who is not allowed to talk to the agent otherwise. It is a first look
// without the network; decided looks again, and such a message never reaches the agent.
func (s *Service) mayDecide(agent agents.Entry, in exchange.Inbound) bool {
	for _, address := range agent.Settings.Approvers {
		for i := range in.Message.Sender.Identities {
			if in.Message.Sender.Identities[i].Vouches(address) {
				_, is := demand.ReadDecision(in.Message) // last, because it reads a whole mail
				return is
			}
		}
	}
	return false
}

// decided answers a message with which an approver decides. Its agent does not see it. Everybody else's message of the
// same words is an ordinary one.
func (s *Service) decided(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord) (answered bool, err error) {
	message := turn.Message
	if len(agent.Settings.Approvers) == 0 || message.RecipientCapabilities.AgentChain != nil || // programs do not approve
		message.PolicyResolution != nil || message.ReceivedTrace != nil {
		return false, nil
	}
	said, is := demand.ReadDecision(message)
	if !is {
		return false, nil
	}
	by, is, err := s.approver(ctx, agent, message.Sender)
	if err != nil {
		return true, s.failed(ctx, job, turn, record, fault.RetryIn(0, "the sender cannot be checked now", err))
	}
	shutOut := len(message.Sender.Identities) > 0 &&
		!agent.Settings.Access.Decide(identity.PurposeMessage, message.Sender.Address, message.Sender.Identities).Allowed
	if !is {
		if shutOut {
			return true, s.reply(ctx, job, turn, record, sentence(turn, "access:no_rule", "This agent is not open to you."), "let in to decide, and is no approver")
		}
		return false, nil
	}
	for range maxDecisions {
		verdict, err := s.options.Demands.Answer(ctx, turn, said, by)
		switch {
		case err != nil:
			return true, s.failed(ctx, job, turn, record, err)
		case !verdict.Answers && !shutOut:
			return false, nil
		case !verdict.Answers:
			verdict.Sentence = "Nothing waits for your decision."
		}
		if err = s.confirm(ctx, job, turn, record, verdict); !errors.Is(err, errOvertaken) {
			return true, err
		}
	}
	return true, queue.RetryAfter(again, errOvertaken)
}

// approver finds the approver that the sender is.
func (s *Service) approver(ctx context.Context, agent agents.Entry, sender normalized.Sender) (by demand.Decider, is bool, err error) {
	if len(sender.Identities) == 0 {
		return by, false, nil
	}
	for _, address := range agent.Settings.Approvers {
		proof, err := s.options.Approvers.Proves(ctx, sender, address)
		if err != nil {
			return by, false, err
		}
		if proof != nil {
			return demand.Decider{
				Name: proof.Issuer + " " + proof.Subject, Address: address,
				Resolver: &policypart.Resolver{Issuer: proof.Issuer, Subject: proof.Subject, Method: proof.Method},
			}, true, nil
		}
	}
	return by, false, nil
}

// confirm stores the decision together with the sentence that confirms it: a crash leaves both or none.
func (s *Service) confirm(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, verdict demand.Verdict) error {
	end := ending{turn: turn, state: exchange.StateAnswered, reason: "decides about an approval"}
	end.reply = s.newReply(turn, normalized.Response{
		Visibility: normalized.VisibilityDirect, Status: normalized.StatusCompleted, Parts: []normalized.Part{normalized.Text(verdict.Sentence)},
	}.Answering(turn.Message))
	if verdict.Ending == nil {
		return s.conclude(ctx, job, record, end)
	}
	prepared, err := s.prepare(ctx, *verdict.Ending)
	if err != nil {
		return queue.RetryAfter(again, err)
	}
	end.more = func(ctx context.Context, tx Tx) error {
		err := prepared.store(ctx, tx)
		if fault.Is(err, fault.Conflict) {
			return errOvertaken
		}
		return err
	}
	err = s.conclude(ctx, job, record, end)
	if errors.Is(err, queue.ErrSettled) {
		s.broker.notify(prepared.turn.ID)
	}
	return err
}

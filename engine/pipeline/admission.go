package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// admission is what the operator's rules say about a message: the state in which its turn begins and why, or a refusal.
type admission struct {
	state, reason string
	refusal       error
	audit         []exchange.AuditRecord // rows that go with the turn, or alone with a refusal
}

// admit asks the operator's rules about a message, in this order: who is kept out of the server, what is never answered,
// what a sender without proof gets, who may talk to the agent at all.
func (s *Service) admit(agent agents.Entry, in exchange.Inbound) admission {
	proven := len(in.Message.Sender.Identities) > 0
	listed := s.options.Moderator.Sender(in.Message.Sender)
	switch {
	case listed.Refused():
		return s.turnedAway(agent, in, listed.Code, refusedPublic, listed.Reason)
	case in.NoReply != "":
		return admission{state: exchange.StateSilent, reason: in.NoReply}
	case !proven && agent.Settings.Unverified == agents.UnverifiedRefuse:
		return s.turnedAway(agent, in, "access:unverified", "this agent does not take messages from senders without a valid proof", "")
	}
	decision := agent.Settings.Access.Decide(identity.PurposeMessage, in.Message.Sender.Address, in.Message.Sender.Identities)
	byRule := decision.Rule >= 0
	switch {
	case !decision.Allowed && s.mayDecide(agent, in):
		return admission{state: exchange.StateAccepted}
	case !decision.Allowed && (proven || byRule || agent.Settings.Unverified == agents.UnverifiedAnswer):
		return s.turnedAway(agent, in, decision.Code, "this agent is not open to you", decision.Reason)
	case listed.Effect != "":
		return admission{state: exchange.StateHeld, reason: listed.Reason, audit: []exchange.AuditRecord{auditRow(agent.Profile.Name, in, listed.Code, listed.Reason)}}
	case proven || agent.Settings.Unverified == agents.UnverifiedAnswer:
		return admission{state: exchange.StateAccepted}
	}
	return admission{state: exchange.StateHeld, reason: "nothing proves the sender; the agent's setting unverified is hold"}
}

// turnedAway refuses a message. The sender hears one plain sentence, the operator the reason.
func (s *Service) turnedAway(agent agents.Entry, in exchange.Inbound, code, public, reason string) admission {
	if reason == "" {
		reason = public
	}
	return admission{
		refusal: fault.New(fault.Forbidden, public),
		audit:   []exchange.AuditRecord{auditRow(agent.Profile.Name, in, code, reason)},
	}
}

func auditRow(agent string, in exchange.Inbound, code, detail string) exchange.AuditRecord {
	return exchange.AuditRecord{
		ID: newID(), At: time.Now(), Code: code, Agent: agent, Principal: in.Message.Sender.Principal(), Detail: detail,
	}
}

// disbelief makes the audit rows of evidence that was offered and not believed.
func disbelief(agent string, in exchange.Inbound) []exchange.AuditRecord {
	rows := make([]exchange.AuditRecord, 0, len(in.Rejected))
	for _, rejected := range in.Rejected {
		detail := rejected.Reason
		if rejected.Issuer != "" {
			detail += " (issuer " + rejected.Issuer + ", subject " + rejected.Subject + ")"
		}
		rows = append(rows, auditRow(agent, in, rejected.Code, detail))
	}
	return rows
}

// refuse writes the audit rows of a message that gets no turn and returns its refusal. A database that is down comes
// first: the peer repeats the message, and the refusal is then on record.
func (s *Service) refuse(ctx context.Context, refusal error, rows []exchange.AuditRecord) error {
	if len(rows) == 0 {
		return refusal
	}
	err := s.options.Store.InTx(ctx, func(tx Tx) error { return auditAll(ctx, tx, "", rows) })
	if err != nil {
		return unavailable("audit refusal", err)
	}
	return refusal
}

func auditAll(ctx context.Context, tx Tx, turnID string, rows []exchange.AuditRecord) error {
	for _, row := range rows {
		if row.TurnID == "" {
			row.TurnID = turnID
		}
		if err := tx.Audit(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// permits asks the agent's rules about one purpose of a sender.
func permits(agent agents.Entry, sender normalized.Sender) func(purpose string) bool {
	return func(purpose string) bool {
		return agent.Settings.Access.Decide(purpose, sender.Address, sender.Identities).Allowed
	}
}

package pipeline

import (
	"context"
	"errors"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// Notice is a message to the operator that no question asked for.
type Notice struct {
	ID      string // the same one is sent once
	Agent   string // that sends it
	To      string
	Subject string
	Text    string
	Files   []normalized.Part
	// With writes more in the transaction that stores it, once; nil = nothing.
	With func(ctx context.Context, tx Tx, turnID string) error
}

// NoticeTurn is the id of the turn of a notice.
func NoticeTurn(noticeID string) string { return exchange.DerivedID(noticeID, "notice") }

// Notify stores a notice as a conversation that its agent begins, so that it is delivered like any reply, and ends the job
// with it, by the opening of the channel that reaches the operator: it returns queue.ErrSettled then. Other errors are those of the
// database, or classed with fault.GiveUp.
func (s *replier) Notify(ctx context.Context, job queue.Job, notice Notice, opening exchange.Opening) error {
	agent, known := s.options.Agents.Lookup(notice.Agent)
	if !known {
		return fault.GiveUp("there is no agent "+notice.Agent, nil)
	}

	own, err := identity.ParseAddress(agent.Profile.Address)
	if err != nil {
		return fault.GiveUp("the agent has no address", err)
	}

	now := time.Now()
	message := normalized.Message{
		ID: "notice-" + notice.ID, ReceivedVia: opening.ReceivedVia, ReceivedAt: identity.At(now),
		Sender: normalized.Sender{
			Address: identity.Stated(agent.Profile.Address), DisplayName: agent.Profile.DisplayName, AuthMethod: normalized.AuthA2AOAuth, Verified: true,
			Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
				Domain: own.Domain, Subject: own.Acct(), Method: identity.MethodLocalAgent, Assurance: identity.AssuranceAgent, Addressed: identity.AddressedLocal,
				Recipient: agent.Profile.Address, IssuedAt: now,
			})},
		},
		Recipient: agent.Profile.Address, Parts: []normalized.Part{normalized.Text(notice.Subject)},
		RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
	}

	message.ThreadID = exchange.ConversationID(opening.Channel, agent.Profile.Name, message.Sender.Principal(), message.ID)
	turn := exchange.TurnRecord{
		ID: NoticeTurn(notice.ID), Agent: agent.Profile.Name, Principal: message.Sender.Principal(), ThreadID: message.ThreadID,
		State: exchange.StateAnswered, Reason: "tells the operator", Channel: opening.Channel, Message: message, Route: opening.Route, Audience: exchange.Audience{Parties: opening.Parties}, AcceptedAt: now, UpdatedAt: now,
	}

	reply := s.newReply(turn, normalized.Response{
		Visibility: normalized.VisibilityDirect, Status: normalized.StatusCompleted, Parts: append([]normalized.Part{normalized.Text(notice.Text)}, notice.Files...),
	}.Answering(message))

	plan, err := s.plan(ctx, reply)
	if errors.Is(err, fault.ErrStore) {
		return err
	}
	if err != nil {
		return fault.GiveUp("nothing can be sent to "+notice.To, err)
	}

	reply = planned(reply, plan)
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		if _, inserted, err := tx.InsertTurn(ctx, turn, Original{}); err != nil || !inserted {
			return err
		}
		if err := tx.InsertReply(ctx, reply, plan.NativeID); err != nil {
			return err
		}
		if notice.With != nil {
			if err := notice.With(ctx, tx, turn.ID); err != nil {
				return err
			}
		}
		return insertDeliveries(ctx, tx, reply, deliveriesOf(ctx, reply, plan))
	})
	if err != nil {
		return err
	}

	return queue.ErrSettled
}

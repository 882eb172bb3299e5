package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// NoticeKind is the queue kind of what an agent's server tells its operator; the payload is a Notice.
const NoticeKind = "notice"

// Notice is a message to the operator that no question asked for.
type Notice struct {
	ID      string `json:"id"` // UUIDv7; the same notice is sent once
	Agent   string `json:"agent"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Job is the notice as durable work.
func (n Notice) Job() (queue.NewJob, error) {
	body, err := json.Marshal(n)
	return queue.NewJob{ID: newID(), Kind: NoticeKind, Payload: string(body)}, err
}

// Notify stores a notice as a conversation that its agent begins, so that it is delivered like any reply, and ends the job
// with it, by the opening of the channel that reaches the operator.
func (s *replier) Notify(ctx context.Context, job queue.Job, notice Notice, opening exchange.Opening) error {
	agent, known := s.options.Agents.Lookup(notice.Agent)
	if !known {
		return queue.GiveUp("there is no agent "+notice.Agent, nil)
	}

	own, err := identity.ParseAddress(agent.Profile.Address)
	if err != nil {
		return queue.GiveUp("the agent has no address", err)
	}

	now := time.Now()
	message := normalized.Message{
		ID: "notice-" + notice.ID, ThreadID: "notice-" + notice.ID, ReceivedVia: opening.ReceivedVia, ReceivedAt: identity.At(now),
		Sender: normalized.Sender{
			Address: agent.Profile.Address, DisplayName: agent.Profile.DisplayName, AuthMethod: normalized.AuthA2AOAuth, Verified: true,
			Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
				Domain: own.Domain, Subject: own.Acct(), Method: identity.MethodLocalAgent, Assurance: identity.AssuranceAgent,
				Recipient: agent.Profile.Address, IssuedAt: now,
			})},
		},
		Recipient: agent.Profile.Address, Parts: []normalized.Part{normalized.Text(notice.Subject)},
		RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
	}

	turn := exchange.TurnRecord{
		ID: exchange.DerivedID(notice.ID, "notice"), Agent: agent.Profile.Name, Principal: message.Sender.Principal(), ThreadID: message.ThreadID,
		State: exchange.StateAnswered, Reason: "tells the operator", Channel: opening.Channel, Message: message, Route: opening.Route, AcceptedAt: now, UpdatedAt: now,
	}

	reply := s.newReply(turn, normalized.Response{
		Visibility: normalized.VisibilityDirect, Status: normalized.StatusCompleted, Parts: []normalized.Part{normalized.Text(notice.Text)},
	}.Answering(message))

	plan, err := s.plan(ctx, reply)
	if errors.Is(err, fault.ErrStore) {
		return err
	}
	if err != nil {
		return queue.GiveUp("nothing can be sent to "+notice.To, err)
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
		return insertDeliveries(ctx, tx, reply, deliveriesOf(ctx, reply, plan))
	})
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	return queue.ErrSettled
}

// NoticeOf reads the payload of a job.
func NoticeOf(job queue.Job) (Notice, error) {
	var notice Notice
	if err := json.Unmarshal([]byte(job.Payload), &notice); err != nil {
		return notice, fault.GiveUp("the notice cannot be read", err)
	}
	return notice, nil
}

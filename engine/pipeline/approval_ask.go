package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/policypart"
)

// ApprovalKind is the queue kind of what an approval still has to tell someone; the payload is an approvalJob.
const ApprovalKind = "approval"

// auditUnreachable is the code of an approver who could not be asked.
const auditUnreachable = "approval:unreachable"

// retryTelling are the waits between attempts to begin a conversation with an approver. The approval's own end also ends
// them.
var retryTelling = []time.Duration{
	2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
}

// maxAsked bounds the open approvals of one agent about which people are written to: every sender of the agent could
// flood its approvers otherwise. The others wait until some of them are decided; askLater is how often is looked.
const (
	maxAsked = 20
	askLater = time.Minute
)

// approvalJob tells an approver that they are asked, or, without an approver, the asker that the answer is no.
type approvalJob struct {
	Demand   string `json:"demand"`
	Approver string `json:"approver,omitempty"`
}

func newApprovalJob(payload approvalJob) queue.NewJob {
	body, err := json.Marshal(payload)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return queue.NewJob{ID: newID(), Kind: ApprovalKind, Payload: string(body)}
}

func lastWordJob(issuance policypart.Issuance) queue.NewJob {
	return newApprovalJob(approvalJob{Demand: issuance.ID})
}

func enqueueTelling(ctx context.Context, tx Tx, issuance policypart.Issuance, approvers []string) error {
	for _, address := range approvers {
		if err := tx.Enqueue(ctx, newApprovalJob(approvalJob{issuance.ID, address})); err != nil {
			return err
		}
	}
	return nil
}

// RunApproval is the queue handler of ApprovalKind.
func (s *approver) RunApproval(ctx context.Context, job queue.Job) error {
	var payload approvalJob
	if err := json.Unmarshal([]byte(job.Payload), &payload); err != nil {
		return queue.GiveUp("the job cannot be read", err)
	}

	issuance, err := s.options.Store.Demand(ctx, payload.Demand)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the row of the approval is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	ctx = telemetry.With(ctx, "turn", issuance.TurnID, "agent", issuance.Agent, "approval", issuance.ID)
	if payload.Approver == "" {
		return s.tellAsker(ctx, job, issuance)
	}

	agent, known := s.options.Agents.Lookup(issuance.Agent)
	if !known || !open(issuance) { // decided already: nothing to ask
		return nil
	}

	before, err := s.options.Store.Approvals(ctx, exchange.ApprovalFilter{Agent: issuance.Agent, Before: issuance.ID, Limit: maxAsked})
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	if len(before) == maxAsked {
		return queue.SnoozeFor(askLater)
	}

	return s.askApprover(ctx, job, agent, issuance, payload.Approver)
}

func open(issuance policypart.Issuance) bool { return issuance.CheckOpen(time.Now()) == nil }

// tellAsker ends a turn whose approval was denied by a process without adapters.
func (s *approver) tellAsker(ctx context.Context, job queue.Job, issuance policypart.Issuance) error {
	last, ok := s.options.Demands.LastWord(issuance)
	if !ok {
		return nil
	}

	prepared, err := s.demands.prepare(ctx, last)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		return prepared.tell(ctx, tx)
	})
	if err != nil {
		return err
	}

	s.broker.notify(issuance.TurnID)
	return queue.ErrSettled
}

// askApprover begins a conversation with one approver: a turn of its own whose message is ours and whose reply says what
// is to be decided, so that it is delivered like any reply. Done twice it is done once: the message has the same id.
func (s *approver) askApprover(ctx context.Context, job queue.Job, agent agents.Entry, issuance policypart.Issuance, address string) error {
	opening, err := s.options.Approvers.Open(ctx, agent.Profile.Name, address)
	if err != nil {
		return s.notAsked(ctx, job, issuance, address, err)
	}

	turn := s.opening(agent, issuance, address, opening)
	reply := s.replies.newReply(turn, s.options.Demands.Told(issuance).Answering(turn.Message))
	plan, err := s.replies.plan(ctx, reply)
	if err != nil {
		return s.notAsked(ctx, job, issuance, address, fault.GiveUp("nothing can be sent to this address", err))
	}

	reply = planned(reply, plan)
	told, err := json.Marshal(map[string]string{"to": address, "turn": turn.ID})
	if err != nil {
		return err
	}

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

		event := exchange.Event{Kind: exchange.EventApprovalTold, Body: told, At: reply.CreatedAt}
		if err := tx.AppendEvents(ctx, issuance.TurnID, []exchange.Event{event}); err != nil {
			return err
		}

		return insertDeliveries(ctx, tx, reply, deliveriesOf(ctx, reply, plan))
	})
	if err != nil {
		return err
	}

	return queue.ErrSettled
}

// opening is the turn of a conversation that we begin. Its message is the agent's own, so that no one else passes for its
// sender, and its answer is what the approver gets to read. Its ids cannot be computed by others: an answer is known by them.
func (s *approver) opening(agent agents.Entry, issuance policypart.Issuance, address string, by exchange.Opening) exchange.TurnRecord {
	now, id := time.Now(), s.options.Demands.Question(issuance.ID, address)
	own, _ := identity.ParseAddress(agent.Profile.Address) // the registry has checked it
	message := normalized.Message{
		ID: "approval-" + id,
		Sender: normalized.Sender{
			Address: identity.Stated(agent.Profile.Address), DisplayName: agent.Profile.DisplayName, AuthMethod: normalized.AuthA2AOAuth, Verified: true,
			Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
				Domain: own.Domain, Subject: own.Acct(), Method: identity.MethodLocalAgent, Assurance: identity.AssuranceAgent, Addressed: identity.AddressedLocal,
				Recipient: agent.Profile.Address, IssuedAt: now,
			})},
		},
		Recipient: agent.Profile.Address, Parts: []normalized.Part{normalized.Text(address + " is asked for an approval.")},
		RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		ReceivedVia:           by.ReceivedVia, ReceivedAt: identity.At(now),
	}

	message.ThreadID = exchange.ConversationID(by.Channel, agent.Profile.Name, message.Sender.Principal(), message.ID)
	return exchange.TurnRecord{
		ID: id, Agent: agent.Profile.Name, Principal: message.Sender.Principal(), ThreadID: message.ThreadID, Reference: issuance.ID,
		State: exchange.StateAnswered, Reason: "asks for approval " + issuance.ID, Channel: by.Channel, Message: message, Route: by.Route, Audience: exchange.Audience{Parties: by.Parties}, AcceptedAt: now, UpdatedAt: now,
	}
}

// notAsked tries again what may pass; an approver who cannot be reached is on record, and the others decide.
func (s *approver) notAsked(ctx context.Context, job queue.Job, issuance policypart.Issuance, address string, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}

	f := fault.Of(cause)
	if !f.Permanent && job.Attempt <= len(retryTelling) {
		return queue.RetryAfter(max(retryTelling[job.Attempt-1], f.RetryAfter), cause)
	}

	s.options.Logger.WarnContext(ctx, "an approver cannot be asked", "approver", address, "error", cause)
	row := exchange.AuditRecord{
		ID: newID(), At: time.Now(), Code: auditUnreachable, TurnID: issuance.TurnID, Agent: issuance.Agent,
		Detail: clip.Bytes(fmt.Sprintf("demand %s: %s cannot be asked: %v", issuance.ID, address, cause), maxDetail),
	}

	if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.Audit(ctx, row) }); err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	return queue.GiveUp(address+" cannot be asked: "+f.Public, cause)
}

// maxDetail bounds the detail of an audit row.
const maxDetail = 512

package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// inlineOriginal is the largest original that rides in the message's own transaction; larger ones are written to
// the blob store first, because a second fsync costs more than checking a DKIM signature.
const inlineOriginal = 64 << 10

// Receive accepts one message: validate, policy at the door, dedupe, message and job in one transaction. When it
// returns without error the message is durable and the peer may hear its success answer. Errors are *fault.Fault:
// Malformed and TooLarge name the field, NotFound = no such agent, Forbidden = refused by policy, Conflict = the id
// was used for another message, Unavailable = nothing was stored, the peer should repeat.
func (s *Service) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	receipt, outcome, err := s.receive(ctx, in)
	accepted.WithLabelValues(in.Message.ReceivedVia, outcome).Inc()
	return receipt, err
}

func (s *Service) receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, string, error) {
	agent, err := s.admit(&in)
	if err == nil {
		err = s.open(agent.Profile.Name, len(in.Message.Sender.Identities) > 0)
	}
	if err == nil {
		err = s.smallEnough(in)
	}
	if err == nil {
		err = s.chain(agent, &in)
	}
	if err != nil {
		return exchange.Receipt{}, "refused", s.refuseChain(ctx, in, err)
	}
	decided := s.door(agent, in)
	if decided.refusal != nil || in.Settlement != nil {
		if receipt, repeated, err := s.repeat(ctx, agent, in); repeated || err != nil {
			return receipt, "duplicate", err
		}
	}
	if decided.refusal != nil {
		return exchange.Receipt{}, "refused", s.refuse(ctx, decided.refusal, append(decided.audit, disbelief(agent.Profile.Name, in)...))
	}
	taken, err := s.takeUp(ctx, agent, &in)
	if err != nil {
		return exchange.Receipt{}, "refused", err
	}
	turn := newTurn(agent, in, decided)
	networks := s.networks(in)
	if len(networks) > 0 {
		turn.Network = networks[0]
	}
	taken.settleTurn(&turn)
	limited, err := s.limit(ctx, agent, in, &turn, networks)
	defer limited.counted.Release() // unless it was committed: on every way out, also of a panic
	if limited.repeated != nil && err == nil {
		return *limited.repeated, "duplicate", nil
	}
	if err != nil {
		return exchange.Receipt{}, "refused", err
	}
	decided.audit = append(decided.audit, limited.audit...)
	original, err := s.original(ctx, &turn.Message, in)
	if err != nil {
		return exchange.Receipt{}, "error", err
	}
	stored, inserted, err := s.store(ctx, entrance{
		agent: agent, guarded: guarded(in), claim: in.Claim, fresh: in.NewThread,
		last: limited.last, turn: turn, original: original, size: len(in.Original), bytes: storedBytes(in), audit: append(decided.audit, disbelief(agent.Profile.Name, in)...), taken: taken,
	})
	if taken, is := errors.AsType[*claimed](err); is {
		return exchange.Receipt{Claimed: taken.instead}, "duplicate", nil
	}
	if fault.Is(err, fault.RateLimited) { // it waits here already
		if receipt, repeated, err := s.repeat(ctx, agent, in); repeated || err != nil {
			return receipt, "duplicate", err
		}
	}
	switch {
	case fault.Is(err, fault.Conflict), fault.Is(err, fault.Malformed), fault.Is(err, fault.Forbidden), fault.Is(err, fault.RateLimited):
		return exchange.Receipt{}, "refused", err
	case err != nil:
		return exchange.Receipt{}, "error", unavailable("accept message", err)
	}
	receipt := exchange.Receipt{TurnID: stored.ID, New: inserted, State: stored.State, Reference: stored.Reference}
	if !inserted {
		return receipt, "duplicate", nil
	}
	limited.counted.Commit()
	return receipt, stored.State, nil
}

// repeat finds the first copy of a message. Its proofs may be used up by now, evidence and settlements alike, so a
// refusal must not be the answer to a message that was taken before.
func (s *Service) repeat(ctx context.Context, agent agents.Entry, in exchange.Inbound) (exchange.Receipt, bool, error) {
	sent, err := s.options.Store.SentMessages(ctx, agent.Profile.Name, in.Message.ID, in.Message.Sender.Principal())
	if err != nil {
		return exchange.Receipt{}, false, unavailable("look for a repeated message", err)
	}
	if len(sent) == 0 {
		return exchange.Receipt{}, false, nil
	}
	turn, err := s.options.Store.Turn(ctx, sent[0].TurnID)
	if err != nil {
		return exchange.Receipt{}, false, unavailable("read a repeated message", err)
	}
	return exchange.Receipt{TurnID: turn.ID, State: turn.State, Reference: turn.Reference}, true, nil
}

// admit cleans and validates the message and finds its agent.
func (s *Service) admit(in *exchange.Inbound) (agents.Entry, error) {
	if in.Message.ReceivedAt.IsZero() {
		in.Message.ReceivedAt = identity.Now()
	}
	if in.Channel == "" {
		return agents.Entry{}, fault.InField("channel", "is missing: an adapter names the channel by which it answers")
	}
	if in.Message.Surface == nil {
		in.Message.Surface = new(normalized.Surface)
	}
	if in.Message.Surface.Channel == "" { // a connector names its product
		in.Message.Surface.Channel = in.Channel
	}

	in.Message.Clean()
	if err := normalized.Validate(in.Message, s.options.Limits); err != nil {
		return agents.Entry{}, err
	}
	address, err := identity.ParseAddress(in.Message.Recipient)
	if err != nil {
		return agents.Entry{}, fault.InField("recipient", "must be @agent@domain")
	}
	agent, known := s.options.Agents.Lookup(address.Local)
	if !known || !sameDomain(agent.Profile.Address, address) {
		return agents.Entry{}, fault.Newf(fault.NotFound, "no agent %s here", in.Message.Recipient)
	}
	return agent, nil
}

// sameDomain says whether the address is on the agent's domain; mail leaves the port of a development domain out.
func sameDomain(agentAddress string, given identity.Address) bool {
	own, err := identity.ParseAddress(agentAddress)
	return err == nil && (own.Domain == given.Domain || identity.HostOf(own.Domain) == given.Domain)
}

// newTurn makes the row in the state that the door decided.
func newTurn(agent agents.Entry, in exchange.Inbound, decided admission) exchange.TurnRecord {
	now := time.Now()
	turn := exchange.TurnRecord{
		ID: newID(), Agent: agent.Profile.Name, Principal: in.Message.Sender.Principal(), ThreadID: in.Message.ThreadID,
		Reference: in.Reference, State: decided.state, Reason: decided.reason, Channel: in.Channel, Message: in.Message, Route: in.Route,
		AcceptedAt: now, UpdatedAt: now,
		Shared: agent.Settings.HistoryScope == agents.HistoryPerson && len(in.Message.Sender.Identities) > 0 &&
			!guarded(in), // an agent acts for many people
	}
	turn.Message.Recipient = agent.Profile.Address
	turn.Message.History = nil
	return turn
}

// original computes the digest of the native bytes and moves large ones to the blob store.
func (s *Service) original(ctx context.Context, message *normalized.Message, in exchange.Inbound) (Original, error) {
	sum := sha256.Sum256(in.Original)
	original := Original{Digest: hex.EncodeToString(sum[:]), MediaType: message.Raw.MediaType, Body: in.Original}
	message.Raw.Ref = "sha256:" + original.Digest
	s.options.Closed.Admit(rowBytes + 2*int64(min(len(in.Original), inlineOriginal))) // the original and the message made of it
	if len(in.Original) <= inlineOriginal {
		return original, nil
	}
	original.Body = nil
	if _, err := s.options.Blobs.PutBytes(ctx, in.Original); err != nil {
		return original, unavailable("store original", err)
	}
	return original, nil
}

// entrance is everything that one accepted message writes.
type entrance struct {
	agent    agents.Entry
	guarded  bool // another agent wrote it: guard decides inside the transaction
	turn     exchange.TurnRecord
	original Original
	size     int
	bytes    int64 // on the disk
	audit    []exchange.AuditRecord
	taken    *takeover       // nil = the message takes up nothing
	claim    *exchange.Claim // nil = none
	last     *parting        // nil = its agent answers, or nobody does
	fresh    bool            // its thread was made for it
}

// claimed rolls back a message whose claim met another document.
type claimed struct{ instead []byte }

func (c *claimed) Error() string { return errTaken.Error() }

func (e entrance) takePlace(ctx context.Context, tx Tx) error {
	if e.claim == nil {
		return nil
	}
	instead, err := tx.Claim(ctx, *e.claim)
	if err == nil && instead != nil {
		return &claimed{instead}
	}
	return err
}

// store writes turn and job in one transaction, and ends what the message takes up.
func (s *Service) store(ctx context.Context, e entrance) (stored exchange.TurnRecord, inserted bool, err error) {
	if err := s.planLastWord(ctx, e.taken, e.turn); err != nil {
		return e.turn, false, err
	}
	if e.turn.State == exchange.StateAccepted {
		s.hub.expect(e.turn, e.remembered(), e.fresh)
	}
	seat := s.seat(e)
	var dead []exchange.AuditRecord
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		turn := e.turn
		if e.guarded {
			if dead, err = s.guard(ctx, tx, e.agent, &turn); err != nil {
				return err
			}
		}
		room, counts := s.unanswered(turn, e.bytes)
		if counts { // before anything is changed: to undo it costs others their common transaction
			if fits, err := tx.HasRoom(ctx, room); err != nil || !fits {
				return cmp.Or(err, errNoRoom())
			}
		}
		if err = e.takePlace(ctx, tx); err != nil {
			return err
		}
		stored, inserted, err = tx.InsertTurn(ctx, turn, e.original)
		if err != nil || !inserted {
			return err
		}
		if counts {
			if fits, err := tx.KeepUnanswered(ctx, room); err != nil || !fits {
				return cmp.Or(err, errNoRoom())
			}
		}
		if err := auditAll(ctx, tx, turn.ID, slices.Concat(e.audit, dead)); err != nil {
			return err
		}
		if err := e.last.store(ctx, tx); err != nil {
			return err
		}
		if err := e.taken.store(ctx, tx, turn); err != nil || turn.State != exchange.StateAccepted {
			return err
		}
		if seat != nil {
			return tx.EnqueueLeased(ctx, job(turn), seat.Owner, seat.Lease)
		}
		return tx.Enqueue(ctx, job(turn))
	})
	if err != nil || !inserted || stored.State != exchange.StateAccepted {
		s.hub.forget(e.turn.ID)
		if seat != nil {
			seat.Free()
		}
	} else if seat != nil {
		seat.Start(job(stored))
	}
	if err == nil && inserted {
		countStopped(dead)
		e.last.committed()
	}
	if err == nil && inserted && e.taken != nil {
		s.hub.notify(e.taken.parked.ID)
	}
	return stored, inserted, err
}

// seat keeps a place for the run of a message that begins a thread, so that no worker has to find its job. Other messages
// wait for their turn in the thread.
func (s *Service) seat(e entrance) *queue.Seat {
	if !e.fresh || e.turn.State != exchange.StateAccepted || s.options.Seats == nil {
		return nil
	}
	return s.options.Seats(job(e.turn))
}

// remembered says how large the message is for the hub. What guard may change is read from its row.
func (e entrance) remembered() int {
	if e.guarded {
		return maxRemembered + 1
	}
	return e.size
}

// job is the run of a turn. Agents share the places of runs, and the senders of an agent those of the agent.
func job(turn exchange.TurnRecord) queue.NewJob {
	return queue.NewJob{
		ID: turn.ID, Kind: JobKind, Partition: Partition(turn.Agent, turn.ThreadID), Payload: turn.ID,
		Group: turn.Agent, Member: turn.Principal, Guest: len(turn.Message.Sender.Identities) == 0,
	}
}

// unavailable makes any storage trouble a fault that tells the peer to come again.
func unavailable(operation string, err error) error {
	return &fault.Fault{
		Kind: fault.Unavailable, Public: "the server cannot store messages right now", RetryAfter: 30 * time.Second,
		Cause: fmt.Errorf("%s: %w", operation, err),
	}
}

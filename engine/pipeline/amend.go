package pipeline

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// reasonTakenBack is the reason of a turn that was cancelled because its message was deleted.
const reasonTakenBack = "the sender took the message back"

// SentMessage is a stored message as its sender may change it.
type SentMessage struct {
	TurnID    string
	State     string
	Message   normalized.Message // as it stands in the row, without what a resumption adds
	Edited    bool               // it was edited before
	Withdrawn bool               // it was deleted before
}

// SentReader finds messages by what their sender knows of them.
type SentReader interface {
	// SentMessages gives the messages with the native id that the principal sent to the agent; empty agent = to any.
	SentMessages(ctx context.Context, agent, nativeID, principal string) ([]SentMessage, error)
}

// SentTx changes what a sender changed.
type SentTx interface {
	// AmendTurn stores the message in place of the one that is there.
	AmendTurn(ctx context.Context, turnID string, message normalized.Message, at time.Time) error
	// WithdrawTurn takes the question out of the history; its answer stays. It says whether it was there.
	WithdrawTurn(ctx context.Context, turnID string, at time.Time) (bool, error)
}

// Amend replaces the parts of a message that its sender edited, for the next run: a run under way, its answer and the
// native original stay as they are (message contract, section 4, rule 7). The timeline keeps the parts of before the
// first edit. Agent is the name of the agent, empty = all that got the message. NotFound when the principal sent no such
// message; Malformed and TooLarge as for a new message; Forbidden when nothing was proven.
func (s *Service) Amend(ctx context.Context, agent, nativeID, principal string, parts []normalized.Part) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error { return s.amend(ctx, sent, parts) })
}

// Remove takes back a message that its sender deleted: it leaves the history, and its turn is cancelled unless it was
// answered. The answer stays as the agent's own words. Agent and errors are as for Amend; a second call does nothing.
func (s *Service) Remove(ctx context.Context, agent, nativeID, principal string) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error { return s.remove(ctx, sent) })
}

func (s *Service) eachSent(ctx context.Context, agent, nativeID, principal string, change func(SentMessage) error) error {
	if strings.HasPrefix(principal, normalized.Sender{}.Principal()) {
		return fault.New(fault.Forbidden, "only a proven sender can change a message")
	}
	found, err := s.options.Store.SentMessages(ctx, agent, nativeID, principal)
	if err != nil {
		return unavailable("find sent message", err)
	}
	if len(found) == 0 {
		return fault.New(fault.NotFound, "no such message of this sender")
	}
	for _, sent := range found {
		if err := change(sent); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) amend(ctx context.Context, sent SentMessage, parts []normalized.Part) error {
	if sent.Withdrawn {
		return fault.New(fault.NotFound, "the message was deleted")
	}
	before := sent.Message.Parts
	sent.Message.Parts = slices.Clone(parts)
	sent.Message.Clean()
	if err := normalized.Validate(sent.Message, s.options.Limits); err != nil {
		return err
	}
	if slices.EqualFunc(before, sent.Message.Parts, normalized.Part.Equal) {
		return nil // Mastodon sends an Update for a new preview card or poll result too
	}
	event, err := edited(sent, before)
	if err != nil {
		return err
	}
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.AmendTurn(ctx, sent.TurnID, sent.Message, event.At); err != nil {
			return err
		}
		return tx.AppendEvents(ctx, sent.TurnID, []exchange.Event{event})
	})
	if err != nil {
		return unavailable("edit message", err)
	}
	s.hub.forget(sent.TurnID) // its run reads the row
	return nil
}

func edited(sent SentMessage, before []normalized.Part) (exchange.Event, error) {
	event := exchange.Event{Kind: exchange.EventMessageEdited, At: time.Now()}
	if sent.Edited {
		return event, nil
	}
	body, err := json.Marshal(struct {
		Original []normalized.Part `json:"original"`
	}{before})
	event.Body = body
	return event, err
}

// remove cancels first: should the second step be lost, the peer that heard no success repeats both.
func (s *Service) remove(ctx context.Context, sent SentMessage) error {
	if !exchange.Terminal(sent.State) {
		if _, err := s.Cancel(ctx, sent.TurnID, reasonTakenBack); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		now := time.Now()
		there, err := tx.WithdrawTurn(ctx, sent.TurnID, now)
		if err != nil || !there {
			return err
		}
		return tx.AppendEvents(ctx, sent.TurnID, []exchange.Event{{Kind: exchange.EventMessageDeleted, At: now}})
	})
	if err != nil {
		return unavailable("delete message", err)
	}
	return nil
}

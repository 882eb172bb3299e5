package pipeline

import (
	"context"
	"encoding/json"
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
	Route     json.RawMessage
	Edited    bool // it was edited before
	Withdrawn bool // it was deleted before
}

// SentReader finds messages by what their sender knows of them.
type SentReader interface {
	// SentMessages returns the messages with the native id that the principal sent to the agent; empty agent = to any.
	SentMessages(ctx context.Context, agent, nativeID, principal string) ([]SentMessage, error)
	// OpenTurns returns the ids of the principal's turns that run, are to run or wait; empty agent = of any.
	OpenTurns(ctx context.Context, agent, principal string) ([]string, error)
}

// SentTx changes what a sender changed.
type SentTx interface {
	// AmendTurn stores the message in place of the one that is there.
	AmendTurn(ctx context.Context, turnID string, message normalized.Message, at time.Time) error
	// AmendRoute stores new notes on how to answer.
	AmendRoute(ctx context.Context, turnID string, route json.RawMessage) error
	// Claim writes an adapter's document and gives nil, or the other document that has its place.
	Claim(ctx context.Context, claim exchange.Claim) (instead []byte, err error)
	// WithdrawTurn takes the question out of the history and erases it; its answer stays. It reports whether it was there.
	WithdrawTurn(ctx context.Context, turnID string, at time.Time) (bool, error)
}

// Amend replaces the parts of a message that its sender edited. A run under way begins again with them; an answer that
// was given and the native original stay as they are (message contract, section 4, rule 7). The timeline keeps the parts
// of before the first edit. Agent is the name of the agent, empty = all that got the message. NotFound when the principal
// sent no such message; Malformed and TooLarge as for a new message; Forbidden when nothing was proven.
func (s *Service) Amend(ctx context.Context, agent, nativeID, principal string, parts []normalized.Part) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error {
		if sent.Withdrawn {
			return fault.New(fault.NotFound, "the message was deleted")
		}
		return s.edit(ctx, nil, sent, parts, sent.Route)
	})
}

// Remove takes back a message that its sender deleted: it leaves the history, and its turn is cancelled unless it was
// answered. The answer stays as the agent's own words. Agent and errors are as for Amend; a second call does nothing.
func (s *Service) Remove(ctx context.Context, agent, nativeID, principal string) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error { return s.remove(ctx, sent) })
}

func (s *Service) eachSent(ctx context.Context, agent, nativeID, principal string, change func(SentMessage) error) error {
	found, err := s.sent(ctx, agent, nativeID, principal)
	if err != nil {
		return err
	}
	for _, sent := range found {
		if err := change(sent); err != nil {
			return err
		}
	}
	return nil
}

// sent finds the copies of a message that the principal sent.
func (s *Service) sent(ctx context.Context, agent, nativeID, principal string) ([]SentMessage, error) {
	if strings.HasPrefix(principal, normalized.Sender{}.Principal()) {
		return nil, fault.New(fault.Forbidden, "only a proven sender can change a message")
	}
	found, err := s.options.Store.SentMessages(ctx, agent, nativeID, principal)
	if err != nil {
		return nil, unavailable("find sent message", err)
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "no such message of this sender")
	}
	return found, nil
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

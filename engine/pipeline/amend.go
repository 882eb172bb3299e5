package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
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
	// Claim writes an adapter's document and returns nil, or the other document that has its place.
	Claim(ctx context.Context, claim exchange.Claim) (instead []byte, err error)
	// WithdrawTurn takes the question out of the history and erases it; its answer stays. It reports whether it was there.
	WithdrawTurn(ctx context.Context, turnID string, at time.Time) (bool, error)
}

// Amend replaces the parts of a message that its sender edited. A run under way begins again with them; an answer that
// was given and the native original stay as they are (message contract, section 4, rule 7). The timeline keeps the parts
// of before the first edit. Agent is the name of the agent, empty = all that got the message. NotFound when the principal
// sent no such message; Malformed and TooLarge as for a new message; Forbidden when nothing was proven.
func (s *canceller) Amend(ctx context.Context, agent, nativeID, principal string, parts []normalized.Part) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error {
		if sent.Withdrawn {
			return fault.New(fault.NotFound, "the message was deleted")
		}
		return s.edit(ctx, nil, sent, parts, sent.Route)
	})
}

// Remove takes back a message that its sender deleted: it leaves the history, and its turn is cancelled unless it was
// answered. The answer stays as the agent's own words. Agent and errors are as for Amend; a second call does nothing.
func (s *canceller) Remove(ctx context.Context, agent, nativeID, principal string) error {
	return s.eachSent(ctx, agent, nativeID, principal, func(sent SentMessage) error { return s.remove(ctx, sent) })
}

func (s *canceller) eachSent(ctx context.Context, agent, nativeID, principal string, change func(SentMessage) error) error {
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
func (s *canceller) sent(ctx context.Context, agent, nativeID, principal string) ([]SentMessage, error) {
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
func (s *canceller) remove(ctx context.Context, sent SentMessage) error {
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

// Revise replaces parts of a message in every copy that an agent got, together with the adapter's document about it; see
// Amend for what an edit changes and for the errors. Conflict when another document has the place: nothing was changed.
func (s *canceller) Revise(ctx context.Context, revision exchange.Revision) error {
	found, err := s.sent(ctx, "", revision.MessageID, revision.Principal)
	if err != nil {
		return err
	}

	claim := revision.Claim
	for _, sent := range found {
		if sent.Withdrawn {
			continue
		}

		parts, route := revision.Rewrite(sent.Message.Recipient, sent.Route)
		if len(parts) == 0 {
			continue
		}
		if err := s.edit(ctx, claim, sent, parts, route); err != nil {
			return err
		}

		if claim != nil { // the next copy finds the new document: that is the one it wants
			claim = &exchange.Claim{Namespace: claim.Namespace, Key: claim.Key, Value: claim.Value}
		}
	}

	return nil
}

// edit stores the new parts of one copy and lets its run begin again where there is no answer yet.
func (s *canceller) edit(ctx context.Context, claim *exchange.Claim, sent SentMessage, parts []normalized.Part, route json.RawMessage) error {
	before := sent.Message.Parts
	sent.Message.Parts = slices.Clone(parts)
	sent.Message.Clean()
	sent.Message.Parts = s.withoutKeys(sent.Message.Parts, s.keys().Text)

	if err := normalized.Validate(sent.Message, s.options.Limits); err != nil {
		return err
	}
	if claim == nil && slices.EqualFunc(before, sent.Message.Parts, normalized.Part.Equal) {
		return nil // Mastodon sends an Update for a new preview card or poll result too
	}

	event, err := edited(sent, before)
	if err != nil {
		return err
	}

	release, err := s.releaseApproval(ctx, sent)
	if err != nil {
		return unavailable("edit message", err)
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := takePlace(ctx, tx, claim); err != nil {
			return err
		}
		if slices.EqualFunc(before, sent.Message.Parts, normalized.Part.Equal) {
			return nil
		}
		if err := tx.AmendTurn(ctx, sent.TurnID, sent.Message, event.At); err != nil {
			return err
		}
		if err := tx.AmendRoute(ctx, sent.TurnID, route); err != nil {
			return err
		}
		if err := tx.AppendEvents(ctx, sent.TurnID, []exchange.Event{event}); err != nil {
			return err
		}

		return release(tx)
	})
	if errors.Is(err, errTaken) {
		return fault.New(fault.Conflict, "the message was changed meanwhile")
	}
	if err != nil {
		return unavailable("edit message", err)
	}

	s.broker.forget(sent.TurnID) // its run reads the row
	s.broker.restart(sent.TurnID)
	return nil
}

// errTaken rolls back what a claim stands or falls with.
var errTaken = errors.New("another document has the place")

func takePlace(ctx context.Context, tx Tx, claim *exchange.Claim) error {
	if claim == nil {
		return nil
	}
	instead, err := tx.Claim(ctx, *claim)
	if err == nil && instead != nil {
		return errTaken
	}
	return err
}

// releaseApproval drops an approval or a login that waits: the page showed words that are not there any more, perhaps to someone
// else than their sender. The turn runs again.
func (s *canceller) releaseApproval(ctx context.Context, sent SentMessage) (func(Tx) error, error) {
	nothing := func(Tx) error { return nil }
	if sent.State != exchange.StateWaiting {
		return nothing, nil
	}

	open, found, err := s.options.Store.DemandOfTurn(ctx, sent.TurnID)
	if err != nil || !found || open.Purpose != policypart.PurposeApproval && open.Kind != policypart.Unauthorized {
		return nothing, err
	}

	turn, err := s.options.Store.Turn(ctx, sent.TurnID)
	if err != nil {
		return nothing, err
	}

	open.Status, open.UpdatedAt = policypart.StatusDropped, time.Now()
	return func(tx Tx) error {
		dropped, err := tx.SettleDemand(ctx, open, []string{policypart.StatusIssued}, nil)
		if err != nil || !dropped {
			return err
		}
		moved, err := tx.ResumeTurn(ctx, sent.TurnID, nil, nil, time.Now())
		if err != nil || !moved {
			return err
		}
		return tx.Enqueue(ctx, resumedJob(turn))
	}, nil
}

// errEdited is the reason of a run that begins again because its message was edited.
var errEdited = errors.New("the message was edited while the agent worked on it")

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

// React writes a reaction to an answer, or its end, to the timeline of the turn.
func (s *canceller) React(ctx context.Context, turnID string, reaction exchange.Reaction, gone bool) error {
	body, err := json.Marshal(reaction)
	if err != nil {
		return fault.Wrap(fault.Malformed, "the reaction cannot be kept", err)
	}

	event := exchange.Event{Kind: exchange.EventReaction, Body: body, At: time.Now()}
	if gone {
		event.Kind = exchange.EventReactionGone
	}
	if err := s.options.Store.InTx(ctx, func(tx Tx) error {
		return tx.AppendEvents(ctx, turnID, []exchange.Event{event})
	}); err != nil {
		return unavailable("keep reaction", err)
	}

	return nil
}

// EndLinks ends what makes a principal one person with others, for all agents: its account is gone or has another owner now.
func (s *canceller) EndLinks(ctx context.Context, principal, reason string) error {
	_, err := s.options.Store.EndLinks(ctx, exchange.LinkFilter{Principal: principal}, exchange.LinkEnd{By: principal, Reason: reason})
	if err != nil {
		return unavailable("end links", err)
	}
	return nil
}

// CancelOpen ends all turns of a sender that have no answer yet; empty agent = with any agent.
func (s *canceller) CancelOpen(ctx context.Context, agent, principal, reason string) error {
	turns, err := s.options.Store.OpenTurns(ctx, agent, principal)
	if err != nil {
		return unavailable("find open turns", err)
	}

	for _, turnID := range turns {
		if _, err := s.Cancel(ctx, turnID, reason); err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

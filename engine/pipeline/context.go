package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/normalized"
)

// withHistory returns the message as the agent sees it: with the trimmed history of its thread, or of its sender's
// conversations where the agent's history follows the person.
func (s *Service) withHistory(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (normalized.Message, *int, error) {
	message := turn.Message
	query, err := s.threadQuery(ctx, agent, turn)
	if err != nil {
		return message, nil, err
	}
	var excerpt ThreadExcerpt
	if entry, expected := s.broker.expectation(turn.ID); !expected || !entry.fresh || len(query.Principals) > 0 {
		if excerpt, err = s.options.Store.ThreadExcerpt(ctx, query); err != nil {
			return message, nil, err
		}
	}
	told, err := s.ancestors(ctx, turn, excerpt.Total > 0)
	if err != nil || excerpt.Total+told.messages() == 0 {
		return message, nil, err
	}
	if err := s.keepFiles(ctx, slices.Concat(excerpt.Head, excerpt.Tail)); err != nil {
		return message, nil, err
	}
	kept, breakpoint := history.TrimThread(history.Thread{
		Head: turns(agent, excerpt.Head, told), Tail: append(turns(agent, excerpt.Tail, told), told.of(turn.ID).Messages...),
		Total: excerpt.Total + told.messages(),
	}, agent.Settings.History)
	message.History = kept
	return message, breakpoint, nil
}

func (s *Service) threadQuery(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (ThreadQuery, error) {
	policy := agent.Settings.History
	enough := policy.Enough()
	query := ThreadQuery{
		Agent: turn.Agent, ThreadID: turn.ThreadID, Before: turn.ID, Since: policy.Since(time.Now()),
		Enough: func(past Exchange) (is bool) {
			for _, h := range slices.Backward(turns(agent, []Exchange{past}, new(ancestry))) {
				is = enough(h)
			}
			return is
		},
	}
	query.Head, query.Tail = policy.Need()
	var err error
	query.Principals, err = s.principals(ctx, agent, turn)
	return query, err
}

// principals returns the sender and the identities that are linked to it, where the agent's history follows the person.
// Whoever proved nothing is nobody's person: a name alone opens no other conversation.
func (s *Service) principals(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) ([]string, error) {
	sender := turn.Message.Sender
	if agent.Settings.HistoryScope != agents.HistoryPerson || len(sender.Identities) == 0 || turn.Principal != sender.Principal() {
		return nil, nil
	}
	linked, err := s.options.Store.PersonOf(ctx, turn.Principal)
	list := []string{turn.Principal}
	for _, other := range linked {
		if !slices.Contains(list, other.Principal) {
			list = append(list, other.Principal)
		}
	}
	return list, err
}

// keepFiles puts the inline bytes of earlier turns into the blob store: history carries their digests only.
func (s *Service) keepFiles(ctx context.Context, exchanges []Exchange) error {
	for _, past := range exchanges {
		for _, part := range past.parts() {
			if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesInline {
				continue
			}
			content, err := part.BytesRef.Bytes()
			if err != nil {
				return fmt.Errorf("read inline bytes of turn %s: %w", past.Turn.ID, err)
			}
			if _, err := s.options.Blobs.PutBytes(ctx, content); err != nil {
				return fmt.Errorf("keep a file of turn %s: %w", past.Turn.ID, err)
			}
		}
	}
	return nil
}

// turns writes exchanges as history: what was told before the question, the question, then the answer where there was
// one.
func turns(agent agents.Entry, exchanges []Exchange, told *ancestry) []normalized.HistoricalMessage {
	list := make([]normalized.HistoricalMessage, 0, 2*len(exchanges))
	for _, past := range exchanges {
		list = append(list, told.of(past.Turn.ID).Messages...)
		if question := past.Turn.Message; !past.Withdrawn {
			list = append(list, normalized.HistoricalMessage{
				ID: question.ID, Role: normalized.RoleUser, Sender: question.Sender, Parts: question.Parts, Timestamp: question.ReceivedAt,
			})
		}
		if past.Answered() {
			list = append(list, normalized.HistoricalMessage{
				ID: past.ReplyID, Role: normalized.RoleAssistant, Sender: self(agent), Parts: past.Turn.Response.Parts, Timestamp: identity.At(past.At),
			})
		}
	}
	return list
}

func self(agent agents.Entry) normalized.Sender {
	return normalized.Sender{Address: agent.Profile.Address, AuthMethod: normalized.AuthNone}
}

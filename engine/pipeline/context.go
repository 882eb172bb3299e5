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

// historyExchanges bounds the earlier exchanges that are read for one run; the policy trims further.
const historyExchanges = 100

// withHistory gives the message as the agent sees it: with the trimmed history of its thread.
func (s *Service) withHistory(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (normalized.Message, *int, error) {
	message := turn.Message
	exchanges, err := s.options.Store.Thread(ctx, turn.Agent, turn.ThreadID, turn.ID, historyExchanges)
	if err != nil {
		return message, nil, err
	}
	if len(exchanges) == 0 {
		return message, nil, nil
	}
	if err := s.keepFiles(ctx, exchanges); err != nil {
		return message, nil, err
	}
	kept, breakpoint := history.Trim(turns(agent, exchanges), agent.Settings.History, time.Now())
	message.History = kept
	return message, breakpoint, nil
}

// keepFiles puts the inline bytes of earlier turns into the blob store: history carries their digests only.
func (s *Service) keepFiles(ctx context.Context, exchanges []Exchange) error {
	for _, past := range exchanges {
		parts := past.Turn.Message.Parts
		if past.Turn.Response != nil {
			parts = slices.Concat(parts, past.Turn.Response.Parts)
		}
		for _, part := range parts {
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

// turns writes exchanges as history: the question, then the answer where there was one.
func turns(agent agents.Entry, exchanges []Exchange) []normalized.HistoricalMessage {
	list := make([]normalized.HistoricalMessage, 0, 2*len(exchanges))
	for _, past := range exchanges {
		question := past.Turn.Message
		list = append(list, normalized.HistoricalMessage{
			ID: question.ID, Role: normalized.RoleUser, Sender: question.Sender, Parts: question.Parts, Timestamp: question.ReceivedAt,
		})
		if answer := past.Turn.Response; answer != nil && !answer.Silent && len(answer.Parts) > 0 {
			list = append(list, normalized.HistoricalMessage{
				ID: past.ReplyID, Role: normalized.RoleAssistant, Sender: self(agent), Parts: answer.Parts, Timestamp: identity.At(past.At),
			})
		}
	}
	return list
}

func self(agent agents.Entry) normalized.Sender {
	return normalized.Sender{Address: agent.Profile.Address, AuthMethod: normalized.AuthNone}
}

package chat

import (
	"context"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

const maxHistoryLines = 100

// history returns what the client says was said before, as far as nothing of the session is kept here: what we have
// ourselves is never told twice (agent runtime contract, section 6.1).
func (a *Adapter) history(ctx context.Context, q question, owned owner, session string) ([]line, error) {
	told := q.input.History
	if len(told) == 0 {
		return nil, nil
	}
	if q.input.SessionID != "" {
		kept, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{
			Agent: owned.agent, Principal: owned.principal, ThreadID: owned.thread(session), ByArrival: true, Limit: 1,
		})
		if err != nil || len(kept) > 0 {
			return nil, err
		}
	}
	told = told[max(len(told)-maxHistoryLines, 0):]
	lines := make([]line, len(told))
	for i, one := range told {
		lines[i] = line{one.Role, one.Content}
	}
	return lines, nil
}

// Late reports whether the client told what was said before its message.
func (*Adapter) Late(turn exchange.TurnRecord) bool { return len(routeOf(turn).History) > 0 }

// Ancestors returns what the client says was said before, oldest first. All of it is the client's word: its lines of the
// assistant were perhaps never said.
func (*Adapter) Ancestors(_ context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	lines := routeOf(turn).History
	list := make([]normalized.HistoricalMessage, 0, len(lines))
	for _, line := range lines {
		message := normalized.HistoricalMessage{
			Role: normalized.RoleUser, Sender: turn.Message.Sender, Parts: []normalized.Part{normalized.Text(line.Text)},
			Timestamp: identity.At(turn.AcceptedAt),
		}
		if line.Role == "assistant" {
			message.Role, message.Sender = normalized.RoleAssistant, normalized.Sender{Address: turn.Message.Recipient, AuthMethod: normalized.AuthNone}
		}
		if value.Trim(line.Text) != "" {
			list = append(list, message)
		}
	}
	return list, nil
}

package bridge

import (
	"context"
	"strconv"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

var _ exchange.Historian = (*Adapter)(nil)

// Late reports whether the turn begins a session into which an earlier conversation was imported. It is pure.
func (a *Adapter) Late(turn exchange.TurnRecord) bool { return readRoute(turn.Route).Imported }

// Ancestors returns what was imported. Of two messages that came at once into a new session the first one gets it.
func (a *Adapter) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	r := readRoute(turn.Route)
	turns, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{Agent: turn.Agent, ThreadID: turn.ThreadID, ByArrival: true, Limit: maxEvents})
	if err != nil {
		return nil, err
	}
	for _, other := range turns {
		if other.ID < turn.ID {
			return nil, nil
		}
	}
	imported, err := a.options.Sessions.Transcript(ctx, r.Owner, r.Session)
	if err != nil {
		return nil, err
	}
	var history []normalized.HistoricalMessage
	for i, raw := range imported {
		message, err := envelope.Import(decoded([]byte(raw)))
		if err != nil {
			continue // it was checked when it came
		}
		if line, says := a.historical(turn, message, i+1); says {
			history = append(history, line)
		}
	}
	return ends(history), nil
}

// The engine keeps 100 messages of what was said before a turn. The beginning is among them, because the policy of histories
// keeps the head of a thread (message contract, section 4).
const (
	keptMessages = 100
	keptHead     = 4
)

// ends leaves out the middle of a long conversation.
func ends(history []normalized.HistoricalMessage) []normalized.HistoricalMessage {
	if len(history) <= keptMessages {
		return history
	}
	return append(history[:keptHead:keptHead], history[len(history)-keptMessages+keptHead:]...)
}

// historical returns an imported message as a turn of the history. Calls of tools and their results become text: the calls
// were made by somebody else, and no model can be asked to go on with them.
func (a *Adapter) historical(turn exchange.TurnRecord, message envelope.Envelope, number int) (normalized.HistoricalMessage, bool) {
	text := message.Text()
	switch message.Type {
	case envelope.TypeToolCall:
		text = "[called " + message.ToolName() + " " + value.EncodeText(message.Payload["parameters"]) + "]"
	case envelope.TypeToolResult:
		text = "[result: " + text + "]"
	}
	if value.Trim(text) == "" {
		return normalized.HistoricalMessage{}, false
	}
	line := normalized.HistoricalMessage{
		ID: "imported:" + strconv.Itoa(number), Role: normalized.RoleUser, Parts: []normalized.Part{normalized.Text(text)},
		Sender: normalized.Sender{Address: turn.Message.Sender.Address, AuthMethod: normalized.AuthNone}, Timestamp: identity.At(said(message.CreatedAt, turn.AcceptedAt)),
	}
	if message.Role == "assistant" || message.Type == envelope.TypeToolResult {
		line.Role, line.Sender.Address = normalized.RoleAssistant, turn.Message.Recipient
	}
	return line, true
}

// said reads when a message was written; what says no zone is taken as UTC, and what says nothing as the given instant.
func said(written string, otherwise time.Time) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04:05.999999"} {
		if at, err := time.Parse(layout, written); err == nil && at.Before(otherwise) {
			return at.UTC()
		}
	}
	return otherwise
}

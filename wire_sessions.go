package inbox

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// chatReceiver accepts what comes by chat and keeps its sessions, so that holders of a token find them again at
// /v1/sessions. Guests have none: their session is a secret that nobody lists.
type chatReceiver struct {
	receiver interface {
		Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error)
	}
	sessions *store.Store
	logger   *slog.Logger
}

// Receive accepts the message. A session that could not be written costs its place in the list, not the message.
func (c chatReceiver) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	receipt, err := c.receiver.Receive(ctx, in)
	if err != nil || !receipt.New {
		return receipt, err
	}
	if err := c.keep(ctx, in); err != nil {
		c.logger.WarnContext(ctx, "the session of a chat is not listed", "turn", receipt.TurnID, "error", err)
	}
	return receipt, nil
}

func (c chatReceiver) keep(ctx context.Context, in exchange.Inbound) error {
	var route struct {
		Session string            `json:"session"`
		History []json.RawMessage `json:"history"`
	}
	recipient, err := identity.ParseAddress(in.Message.Recipient)
	if err != nil || json.Unmarshal(in.Route, &route) != nil || route.Session == "" || len(in.Message.Sender.Identities) == 0 {
		return nil //nolint:nilerr // it is no chat's, or a guest's
	}
	if len(route.History) > 0 { // the client sends its whole conversation each time and never comes back to a session
		return nil
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	session := exchange.Session{
		ID: route.Session, Owner: in.Message.Sender.Principal(), Agent: recipient.Local, ThreadID: in.Message.ThreadID,
		Title: firstLine(normalized.PlainText(in.Message.Parts)), CreatedAt: now, UpdatedAt: now,
	}
	_, created, err := c.sessions.CreateSession(ctx, session)
	if err != nil || created {
		return err
	}
	return c.sessions.TouchSession(ctx, session.Owner, session.ID, now)
}

// firstLine is the title of a session that nobody named.
func firstLine(text string) string {
	const longest = 120
	line := []rune(text)
	for i, char := range line {
		if char == '\n' || i == longest {
			return string(line[:i])
		}
	}
	return text
}

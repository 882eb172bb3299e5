package delivery

import (
	"context"
	"log/slog"
	"time"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/telemetry"
)

// maxLogged bounds what strangers write into one attribute of a line, in bytes.
const maxLogged = 256

// logAttempt writes the line of the end of an attempt, once it is committed. Attributes: turn, message_id, agent, channel, sender, ms (since
// the server received the message), delivery, attempt, destination (the host) and what the peer said. What strangers wrote
// is cut, and the words of message and answer are in none of them.
func (s *Service) logAttempt(ctx context.Context, record Record, reply exchange.Reply, state, reason string) {
	level, text := slog.LevelInfo, ""
	switch state {
	case StateDelivered:
		text = "answer delivered"
	case StateRetry:
		text = "delivery will be repeated"
	case StateDead:
		level, text = slog.LevelWarn, "delivery is dead" // it asks the operator to do something
	case StateCancelled:
		text = "delivery cancelled"
	}
	if text == "" || !s.options.Logger.Enabled(ctx, level) {
		return
	}

	attributes := []slog.Attr{
		slog.Int64("ms", time.Since(reply.Message.ReceivedAt.Time).Milliseconds()), slog.String("delivery", record.ID),
		slog.Int("attempt", record.Attempt), slog.String("destination", clip.Bytes(record.Key, maxLogged)),
	}
	if reason != "" {
		attributes = append(attributes, slog.String("reason", clip.Bytes(reason, 2*maxLogged)))
	}
	//nolint:sloglint // text is one of the constants above
	s.options.Logger.LogAttrs(withMessage(ctx, record, reply), level, text, attributes...)
}

// withMessage returns a context whose log lines name the message that is answered.
func withMessage(ctx context.Context, record Record, reply exchange.Reply) context.Context {
	return telemetry.With(ctx, slog.String("turn", record.TurnID), slog.String("message_id", clip.Bytes(reply.Message.ID, maxLogged)),
		slog.String("agent", record.Agent), slog.String("channel", record.Channel),
		slog.String("sender", clip.Bytes(reply.Message.Sender.Principal(), maxLogged)))
}

package pipeline

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

// step is the line of one transition of a turn. It is written once the transition is committed, and a run when it begins.
type step struct {
	text  string
	level slog.Level
}

// beginning is the line of each run of a turn; a quick run writes the row of its beginning only with its end.
var beginning = step{"run begins", slog.LevelInfo}

// steps of the log by the state to which a turn came. A failed one asks the operator to do something.
var stepOf = map[string]step{
	exchange.StateAccepted:  {"message accepted", slog.LevelInfo},
	exchange.StateHeld:      {"message held", slog.LevelInfo},
	exchange.StateRefused:   {"message refused", slog.LevelInfo},
	exchange.StateSilent:    {"message left unanswered", slog.LevelInfo},
	exchange.StateWaiting:   {"turn waits", slog.LevelInfo},
	exchange.StateAnswered:  {"message answered", slog.LevelInfo},
	exchange.StateFailed:    {"turn failed", slog.LevelWarn},
	exchange.StateCancelled: {"turn cancelled", slog.LevelInfo},
}

// logState counts the state to which a turn came, and writes its line. Attributes: turn, message_id, agent, channel, sender, carrier (where there is one), ms (since the server
// received the message), attempt (runs so far), and the reason of the state. What strangers wrote is cut, and the words of
// the message are in none of them.
func (s *core) logState(ctx context.Context, turn exchange.TurnRecord, state, reason string) {
	if one, known := stepOf[state]; known {
		turnSteps.WithLabelValues(turn.Channel, state).Inc()
		s.logStep(ctx, one, turn, reason)
	}
}

func (s *core) logStep(ctx context.Context, one step, turn exchange.TurnRecord, reason string) {
	if !s.options.Logger.Enabled(ctx, one.level) {
		return
	}

	attributes := []slog.Attr{slog.Int64("ms", time.Since(turn.Message.ReceivedAt.Time).Milliseconds()), slog.Int("attempt", turn.Attempt)}
	if reason != "" {
		attributes = append(attributes, slog.String("reason", clip.Bytes(reason, 2*maxLogged)))
	}
	//nolint:sloglint // text is that of one of the steps above
	s.options.Logger.LogAttrs(withTurn(ctx, turn), one.level, one.text, attributes...)
}

// withTurn returns a context whose log lines name the turn.
func withTurn(ctx context.Context, turn exchange.TurnRecord) context.Context {
	ctx = telemetry.With(ctx, slog.String("turn", turn.ID), slog.String("message_id", clip.Bytes(turn.Message.ID, maxLogged)),
		slog.String("agent", turn.Agent), slog.String("channel", turn.Channel), slog.String("sender", clip.Bytes(turn.Principal, maxLogged)))
	if turn.Carrier == "" {
		return ctx
	}
	return telemetry.With(ctx, slog.String("carrier", clip.Bytes(turn.Carrier, maxLogged)))
}

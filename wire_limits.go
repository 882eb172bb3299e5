package inbox

import (
	"context"
	"math"
	"strconv"

	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

// limiters are the limits, budgets, stop words and loop guards of the settings.
func (s *Server) limiters() pipeline.Limiters {
	l := s.config.Limits
	s.meter = moderation.NewMeter(moderation.MeterOptions{
		Counters: s.store, Sender: rates(l.Sender), Host: rates(l.Host), Agent: rates(l.Agent), Total: rates(l.Total), Thread: rates(l.Thread),
		Budgets: moderation.Budgets{
			SenderRuns: int64(l.SenderRunsPerDay), AgentRuns: int64(l.AgentRunsPerDay),
			SenderCost: millionths(l.SenderCostPerDay), AgentCost: millionths(l.AgentCostPerDay),
		},
		Conversation: s.conversationLimits,
		Kept:         l.KnownReserve,
		GuestBytes:   moderation.GuestBytes{Network: int64(l.GuestBytesPerDay), All: int64(l.AllGuestBytesPerDay)},
		Logger:       s.logger,
	})
	return pipeline.Limiters{
		Meter: s.meter, Networks: moderation.NewNetworks(s.networkKey), Stop: words(l.StopWords, moderation.DefaultStopWords), Start: words(l.StartWords, moderation.DefaultStartWords),
		BotTurns: l.BotTurns, BotWindow: l.BotWindow, ThreadTurns: l.BotTurnsPerThread,
	}
}

// quotas bound what gets no answer by itself.
func (s *Server) quotas() pipeline.Quotas {
	l := s.config.Limits
	return pipeline.Quotas{
		Sender: pipeline.Usage{Messages: int64(l.HeldPerSender), Bytes: int64(l.HeldBytesPerSender)},
		All:    pipeline.Usage{Messages: int64(l.HeldMessages), Bytes: int64(l.HeldBytes)},
		Kept:   int64(l.KnownReserve), HeldFor: l.HeldFor, SilentFor: l.SilentFor, GuestBytes: int64(l.GuestMaxBytes),
	}
}

// conversationLimits are those of a channel in which our answer wakes the other side. Who fetches the answer asks by itself.
func (s *Server) conversationLimits(channel string) exchange.ConversationLimits {
	module, _ := s.channels.Module(channel)
	return module.Conversation
}

// rates reads what the validation of the settings has let pass.
func rates(texts []string) []exchange.Rate {
	var list []exchange.Rate
	for _, text := range texts {
		if rate, err := moderation.ParseRate(text); err == nil {
			list = append(list, rate)
		}
	}
	return list
}

func millionths(amount string) int64 {
	value, err := strconv.ParseFloat(amount, 64)
	if err != nil {
		return 0
	}
	return max(1, int64(math.Round(value*1e6)))
}

func words(written, usual []string) moderation.Words {
	if len(written) == 0 {
		written = usual
	}
	return moderation.NewWords(written)
}

// runMeter writes what was counted. A database that is down must not end the server.
func (s *Server) runMeter(ctx context.Context) error {
	if err := s.meter.Run(ctx); err != nil {
		s.logger.WarnContext(ctx, "the last second of the limits was not written", "error", err)
	}
	return nil
}

func (s *Server) floodRates() []httpserver.Rate {
	var list []httpserver.Rate
	for _, rate := range rates(s.config.Limits.HTTP) {
		list = append(list, httpserver.Rate{Requests: rate.Amount, Window: rate.Window})
	}
	return list
}

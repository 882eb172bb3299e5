package notice

import (
	"context"
	"errors"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// direct remembers what webhooks were told without the database. Only the goroutine of Run uses it.
type direct struct {
	since map[string]time.Time // subject → when it was first seen to be bad
	told  map[string]time.Time // subject → when webhooks were told
}

// tellDirectly tells webhooks of trouble with the database while a round cannot write it down: notices are rows, and mails and posts are
// rows with jobs, so that webhooks are the only way out. A subject is told once per Period, by each node, and its end is not told.
func (s *Service) tellDirectly(ctx context.Context, round error) {
	if !errors.Is(round, fault.ErrStore) || s.options.Observe == nil {
		s.direct.since = nil
		return
	}
	settings, now := s.options.Current(), s.options.Now()
	if !settings.Tells(exchange.NoticeDatabase) {
		return
	}
	if s.direct.since == nil {
		s.direct.since = map[string]time.Time{}
	}

	for _, seen := range s.options.Observe(ctx) {
		if seen.Kind != exchange.NoticeDatabase {
			continue
		}
		if !seen.Bad {
			delete(s.direct.since, seen.Subject)
			continue
		}
		since, known := s.direct.since[seen.Subject]
		if !known {
			since, s.direct.since[seen.Subject] = now, now
		}
		if last, told := s.direct.told[seen.Subject]; now.Sub(since) < directGrace || told && now.Sub(last) < Period {
			continue
		}

		n, err := s.began(exchange.NoticeCondition{Kind: seen.Kind, Subject: seen.Subject, Reason: seen.Reason, Since: since}, settings, 0, now)
		if err == nil {
			err = s.postDirectly(ctx, n, settings)
		}
		if err != nil {
			s.options.Logger.ErrorContext(ctx, "no webhook of operator.notify could be told of the trouble with the database; will retry", "error", err)
			continue
		}
		if s.direct.told == nil {
			s.direct.told = map[string]time.Time{}
		}
		s.direct.told[seen.Subject] = now
	}
}

// directGrace is how long the database has to be in trouble before webhooks are told without it: a restart of PostgreSQL takes seconds.
const directGrace = time.Minute

// postDirectly succeeds if a webhook has the notice, or if there is none.
func (s *Service) postDirectly(ctx context.Context, n exchange.Notice, settings Settings) error {
	var failures error
	sent := false
	for _, address := range settings.Addresses {
		if address.URL == "" {
			continue
		}
		outcome := "sent"
		if err := s.post(ctx, n, address, settings.Secret); err != nil {
			failures, outcome = errors.Join(failures, err), "failed"
		} else {
			sent = true
		}
		ways.WithLabelValues(wayWebhook, outcome).Inc()
	}
	if sent {
		made.WithLabelValues(exchange.NoticeBegan).Inc()
		return nil
	}
	return failures
}

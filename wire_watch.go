package inbox

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/adapters/a2a"
	"inbox/exchange"
	"inbox/internal/queue"
)

// watchSchedule is the waiting time between attempts to reach a webhook: about a day.
var watchSchedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// newPush gives what webhooks of A2A tasks need.
func (s *Server) newPush() a2a.Push {
	pairs := webhookPairs(s.config.A2A.WebhookHosts)
	named := func(u *url.URL) bool { return slices.Contains(pairs, webhookPair(u)) }
	return a2a.Push{Watches: s.store, Sealer: s.sealer, Web: s.client.Allowing(pairs...), Named: named}
}

// webhookPairs are the host:port pairs of a2a.webhook_hosts; a host without a port is meant at both ports of the web.
func webhookPairs(hosts []string) (pairs []string) {
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err == nil {
			pairs = append(pairs, strings.ToLower(host))
			continue
		}
		bare := strings.ToLower(strings.Trim(host, "[]"))
		pairs = append(pairs, net.JoinHostPort(bare, "443"), net.JoinHostPort(bare, "80"))
	}
	return pairs
}

// webhookPair is the host:port of an address.
func webhookPair(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// handleWatches brings the changes of watched turns to their webhooks, those of one webhook in order.
func (s *Server) handleWatches(adapter *a2a.Adapter) {
	attempts := len(watchSchedule) + 1
	s.queue.Handle(exchange.WatchKind, queue.KindOptions{
		Concurrency: s.config.Queue.DeliveryConcurrency, Schedule: watchSchedule, MaxAttempts: attempts,
	}, func(ctx context.Context, job queue.Job) error {
		var change exchange.WatchJob
		if err := json.Unmarshal([]byte(job.Payload), &change); err != nil {
			return queue.GiveUp("the payload cannot be read", err)
		}
		return classed(ctx, adapter.Notify(ctx, change, job.Attempt >= attempts))
	})
}

package a2a

import (
	"context"
	"encoding/json"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
)

// ChannelName is the name of the channel.
const ChannelName = "a2a"

// webhookSchedule is the waiting time between attempts to reach a webhook: about a day.
var webhookSchedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// Module returns the channel as a node runs it. The changes of watched turns are brought to webhooks, those of one webhook in
// order.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes(), Links: a.Links,
		Jobs: []exchange.Job{{
			Kind: exchange.WatchKind,
			Options: queue.KindOptions{
				Concurrency: a.options.WebhookConcurrency, Schedule: webhookSchedule, MaxAttempts: len(webhookSchedule) + 1,
			},
			Handler: a.runNotification,
		}},
	}
}

func (a *Adapter) runNotification(ctx context.Context, job queue.Job) error {
	var change exchange.WatchJob
	if err := json.Unmarshal([]byte(job.Payload), &change); err != nil {
		return queue.GiveUp("the payload cannot be read", err)
	}
	return queue.Classed(ctx, a.Notify(ctx, change, job.Attempt > len(webhookSchedule)))
}

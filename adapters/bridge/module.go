package bridge

import (
	"context"
	"encoding/json"

	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
)

// ChannelName is the name of the channel.
const ChannelName = "bridge"

// Module returns the channel as a node runs it. Callbacks are as durable as deliveries, and those of one session are in order.
func (a *Adapter) Module() exchange.Module {
	schedule := a.options.Policy.Schedule
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Policy: a.options.Policy, Routes: a.Routes(),
		Jobs: []exchange.Job{{
			Kind:    exchange.BridgeCallbackKind,
			Options: queue.KindOptions{Concurrency: a.options.CallbackConcurrency, Schedule: schedule, MaxAttempts: len(schedule) + 1},
			Handler: a.runCallback,
		}},
	}
}

func (a *Adapter) runCallback(ctx context.Context, job queue.Job) error {
	var item exchange.BridgeCallback
	if err := json.Unmarshal([]byte(job.Payload), &item); err != nil {
		return queue.GiveUp("the payload cannot be read", err)
	}
	return queue.Classed(ctx, a.Callback(ctx, item, job.Attempt))
}

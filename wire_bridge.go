package inbox

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/adapters/bridge"
	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/queue"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// newBridge makes the edge for bridges and connectors, and lets its answers leave beside those of A2A.
func (s *Server) newBridge() (*bridge.Adapter, error) {
	connectors, err := s.connectors()
	if err != nil {
		return nil, err
	}
	adapter, err := bridge.New(bridge.Options{
		Domain: s.config.Domain, Receiver: s.pipeline, Directory: s.registry, Turns: s.store, Runs: s.pipeline, Tokens: s.store,
		Queue: s.store.Bridge(nil), Sessions: s.store, Tasks: s.store.TaskRuns(), Sealer: s.sealer, Web: s.client, Blobs: s.blobs,
		SessionOf: func(owner string) contract.Sessions { return s.store.SessionMap(owner) },
		Believer:  s.validator, Present: s.demands.Present, Connectors: connectors, WaitLimit: s.config.Bridges.MaxWait, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	s.channels[normalized.ViaA2A] = ownSurfaces{s.channels[normalized.ViaA2A], adapter}
	s.handleCallbacks(adapter)
	return adapter, nil
}

// connectors makes what the configuration says about them. Their callbacks are addresses that the operator wrote.
func (s *Server) connectors() ([]bridge.Connector, error) {
	list := make([]bridge.Connector, 0, len(s.config.Connectors))
	for _, entry := range s.config.Connectors {
		web, err := s.callbackClient(entry)
		if err != nil {
			return nil, err
		}
		var secrets []string
		for _, secret := range []config.Secret{entry.Secret, entry.PreviousSecret} {
			if secret != "" {
				secrets = append(secrets, secret.Reveal())
			}
		}
		list = append(list, bridge.Connector{
			Name: entry.Name, Secrets: secrets, Issuer: entry.Issuer, Method: entry.Method, Agents: entry.Agents,
			CallbackURL: entry.CallbackURL, Client: entry.Bridge, Web: web, RequireTimestamp: entry.RequireTimestamp,
		})
	}
	return list, nil
}

// callbackClient reaches the callback that the operator wrote, wherever it is.
func (s *Server) callbackClient(entry config.Connector) (*safehttp.Client, error) {
	if entry.CallbackURL == "" {
		return s.client, nil
	}
	_, client, err := s.trustingOperator(entry.CallbackURL)
	if err != nil {
		return nil, fmt.Errorf("connectors: callback_url of %s: %w", entry.Name, err)
	}
	return client, nil
}

// handleCallbacks brings what waits for bridges to their callbacks, that of one session in order.
func (s *Server) handleCallbacks(adapter *bridge.Adapter) {
	options := queue.KindOptions{
		Concurrency: s.config.Queue.DeliveryConcurrency, Schedule: s.config.Bridges.Retry, MaxAttempts: len(s.config.Bridges.Retry) + 1,
	}
	s.queue.Handle(exchange.BridgeCallbackKind, options, func(ctx context.Context, job queue.Job) error {
		var item exchange.BridgeCallback
		if err := json.Unmarshal([]byte(job.Payload), &item); err != nil {
			return queue.GiveUp("the payload cannot be read", err)
		}
		return classed(ctx, adapter.Callback(ctx, item, job.Attempt))
	})
}

// ownSurfaces is the way of A2A, on which messages of bridges and connectors come too: they say received_via a2a, because
// that list is closed, and leave by another way.
type ownSurfaces struct {
	exchange.Channel
	bridge *bridge.Adapter
}

var (
	_ exchange.Historian = ownSurfaces{}
	_ exchange.Awaited   = ownSurfaces{}
)

// Awaits asks the way below: it knows the routes of all surfaces.
func (o ownSurfaces) Awaits(kept json.RawMessage) bool {
	inner, is := o.Channel.(exchange.Awaited)
	return is && inner.Awaits(kept)
}

// Plan asks the adapter by which the question came.
func (o ownSurfaces) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	if bridge.Ours(reply.Route) {
		return o.bridge.Plan(ctx, reply)
	}
	return o.Channel.Plan(ctx, reply)
}

// Deliver asks the adapter by which the question came.
func (o ownSurfaces) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	if bridge.Ours(delivery.Reply.Route) {
		return o.bridge.Deliver(ctx, delivery)
	}
	return o.Channel.Deliver(ctx, delivery)
}

// Late asks the adapter by which the question came.
func (o ownSurfaces) Late(turn exchange.TurnRecord) bool {
	if bridge.Ours(turn.Route) {
		return o.bridge.Late(turn)
	}
	inner, is := o.Channel.(exchange.Historian)
	return is && inner.Late(turn)
}

// Ancestors asks the adapter by which the question came.
func (o ownSurfaces) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	if bridge.Ours(turn.Route) {
		return o.bridge.Ancestors(ctx, turn)
	}
	if inner, is := o.Channel.(exchange.Historian); is {
		return inner.Ancestors(ctx, turn)
	}
	return nil, nil
}

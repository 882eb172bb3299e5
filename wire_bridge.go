package inbox

import (
	"fmt"

	"inbox/adapters/bridge"
	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/safehttp"
)

// openBridge makes the edge for bridges and connectors.
func (s *Server) openBridge() (module exchange.Module, err error) {
	connectors, err := s.connectors()
	if err != nil {
		return module, err
	}
	s.bridge, err = bridge.New(bridge.Options{
		Domain: s.config.Domain, Receiver: s.pipeline, Directory: s.registry, Turns: s.store, Runs: s.pipeline, Tokens: s.store,
		Queue: s.store.Bridge(nil), Sessions: s.store, Tasks: s.store.TaskRuns(), Sealer: s.sealer, Web: s.client, Blobs: s.blobs,
		SessionOf: func(owner string) contract.Sessions { return s.store.SessionMap(owner) },
		Believer:  s.validator, Present: s.demands.Present, Connectors: connectors, WaitLimit: s.config.Bridges.MaxWait, Logger: s.logger,
		Policy: exchange.Policy{Schedule: s.config.Bridges.Retry}, CallbackConcurrency: s.config.Queue.DeliveryConcurrency,
	})
	if err != nil {
		return module, err
	}
	return s.bridge.Module(), nil
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

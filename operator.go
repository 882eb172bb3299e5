package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/engine/storage"
	"inbox/exchange"
	"inbox/internal/safehttp"
	"inbox/operator"
)

// Operator is what an operator may look at and do.
type Operator = operator.Operator

// OpenOperator opens the database of the configuration, of a running or stopped server, and brings it to this version's
// schema. Close it afterwards.
func OpenOperator(ctx context.Context, config *Config) (*Operator, error) {
	opened, err := storage.Open(ctx, storageOptions(config, slog.Default()), nil)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(config.PublicURL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("public_url: %w", err), opened.Close())
	}

	// Rows are enough here: a server that runs notices by its queue what changed. No demand is decided by a page, so that of
	// demands needs no secret.
	options := operatorOptions(config)
	options.Store, options.Turns = opened, pipeline.New(pipeline.Options{Store: opened.Pipeline()})
	demands := demand.New(demand.Options{Store: opened, BaseURL: base})
	demands.Bind(options.Turns)
	options.Approvals = demands
	options.Deliveries = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: revisers(config)})

	options.Agents = func() (names []string) {
		for i := range config.Agents {
			names = append(names, config.Agents[i].Name)
		}
		return names
	}
	options.Vault = func(ctx context.Context) (operator.Vault, error) {
		sealer, err := storage.OpenSealer(ctx, storageOptions(config, slog.Default()), opened)
		if err != nil {
			return nil, err
		}
		return sealer.Vault(), nil
	}

	options.Withdraw = func(ctx context.Context) (int, error) {
		lists := newLists(config, opened)
		if _, err := lists.Read(ctx); err != nil {
			return 0, err
		}
		deliveries := delivery.New(delivery.Options{Store: opened.Deliverer(), Refused: func(record delivery.Record, reply exchange.Reply) string {
			return refusedDelivery(lists, config.Domain, record, reply)
		}})
		if _, err := deliveries.WithdrawRefused(ctx); err != nil {
			return 0, err
		}
		return cancelBlocked(ctx, opened, lists, options.Turns)
	}
	return operator.New(options), nil
}

// Operator returns what an operator may do on this server. It ends with the server: do not close it.
func (s *Server) Operator() *Operator {
	options := operatorOptions(s.config)
	options.Store, options.Turns, options.Approvals, options.Deliveries = s.store, s.pipeline, s.demands, s.delivery
	options.Agents = func() (names []string) {
		for _, agent := range s.registry.Agents() {
			names = append(names, agent.Name)
		}
		return names
	}
	options.Vault = func(context.Context) (operator.Vault, error) { return s.vault(), nil }
	return operator.New(options)
}

// operatorOptions are those that follow from the configuration.
func operatorOptions(config *Config) operator.Options {
	return operator.Options{
		Config: config, SecretKeyFile: storage.KeyFile(config.DataDir, config.SecretKeyFile), Later: laterJob, OwnHosts: ownHosts(config), UserAgent: userAgent(config),
		Policies: func(client *safehttp.Client) email.PolicyFetcher { return stsFetcher{client, config.Mail.MTASTSPort} },
	}
}

// revisers say which answers can be changed, for programs that have no adapters at hand.
func revisers(config *Config) *exchange.Channels {
	return exchange.NewChannels(exchange.Module{
		Name: activitypub.ChannelName, Reviser: activitypub.Revisions{PostLength: config.Federation.PostLength},
	})
}

// RotateActorKey makes a new key for the account of an agent in the fediverse, and returns its id; the name may be the domain,
// for the server's own account. The ids of accounts stay.
func (s *Server) RotateActorKey(ctx context.Context, name string) (string, error) {
	if strings.EqualFold(name, s.config.Domain) {
		name = ""
	}
	return s.activitypub.RotateKey(ctx, name)
}

// MoveAgent tells the followers of an agent that it is another account now, on another server. It returns that account's id.
func (s *Server) MoveAgent(ctx context.Context, agent, target string) (string, error) {
	return s.activitypub.Move(ctx, agent, target)
}

// UnmoveAgent lets the agent be here again.
func (s *Server) UnmoveAgent(ctx context.Context, agent string) error {
	return s.activitypub.Unmove(ctx, agent)
}

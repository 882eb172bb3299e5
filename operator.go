package inbox

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

// Operator is what an operator may look at and do, on the database of a running or stopped server.
type Operator struct {
	config   *Config
	store    *store.Store
	delivery *delivery.Service

	registered []string // names of agents that are not in the configuration
}

// OpenOperator opens the database of the configuration and brings it to this version's schema.
func OpenOperator(ctx context.Context, config *Config) (*Operator, error) {
	opened, err := openStore(ctx, config, slog.Default(), nil)
	if err != nil {
		return nil, err
	}
	return &Operator{config: config, store: opened, delivery: delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: revisers(config)})}, nil
}

// Close closes the database.
func (o *Operator) Close() error { return o.store.Close() }

// SchemaVersion gives the version of the database's schema.
func (o *Operator) SchemaVersion(ctx context.Context) (int64, error) {
	return o.store.SchemaVersion(ctx)
}

// Deliveries lists deliveries, newest first.
func (o *Operator) Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error) {
	records, err := o.store.Deliveries(ctx, filter)
	return listed(records), err
}

// RetryDelivery sends a dead or cancelled delivery again, under the same wire id.
func (o *Operator) RetryDelivery(ctx context.Context, id string) error {
	return o.delivery.Again(ctx, id)
}

// CancelDelivery stops a delivery that has not been made.
func (o *Operator) CancelDelivery(ctx context.Context, id string) error {
	return o.delivery.Cancel(ctx, id)
}

// CreateToken mints a bearer token for a peer; agent limits it to one agent. Only its hash is kept. The name becomes
// the peer's address, so it must not be the name of an agent.
func (o *Operator) CreateToken(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	return o.createToken(ctx, name, agent, exchange.TokenPeer)
}

// CreatePullToken mints a bearer token for the program behind an agent of kind pull: it reads every message to the agent
// and answers in its name. It opens nothing to callers.
func (o *Operator) CreatePullToken(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	if agent == "" {
		return "", exchange.Token{}, fault.InField("agent", "is required: the token is for one agent")
	}
	return o.createToken(ctx, name, agent, exchange.TokenPull)
}

// CreateToolsToken mints a bearer token for a program that executes the client tools of an agent: it reads their calls and
// hands in the results. It opens nothing to callers.
func (o *Operator) CreateToolsToken(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	if agent == "" {
		return "", exchange.Token{}, fault.InField("agent", "is required: the token is for one agent")
	}
	return o.createToken(ctx, name, agent, exchange.TokenTools)
}

func (o *Operator) createToken(ctx context.Context, name, agent, scope string) (string, exchange.Token, error) {
	if !identity.ValidAgentName(name) {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a token's name must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	}
	known := agent == ""
	for _, configured := range o.config.Agents {
		if strings.EqualFold(configured.Name, name) {
			return "", exchange.Token{}, fault.Newf(fault.Conflict, "%s is an agent of this server; choose another name for the peer", name)
		}
		known = known || strings.EqualFold(configured.Name, agent)
	}
	if !known {
		return "", exchange.Token{}, fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", agent)
	}
	token, hash := bearer.Mint()
	record := exchange.Token{
		ID: uuid.Must(uuid.NewV7()).String(), Name: name, Agent: agent, Scope: scope, Hash: hash, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	return token, record, o.store.CreateToken(ctx, record)
}

// Tokens lists the tokens, newest first; never the secrets.
func (o *Operator) Tokens(ctx context.Context) ([]exchange.Token, error) {
	tokens, err := o.store.Tokens(ctx)
	return listed(tokens), err
}

// listed makes an empty list of none, so that JSON says [] and not null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// RevokeToken makes a token useless; servers that run notice within seconds.
func (o *Operator) RevokeToken(ctx context.Context, id string) error {
	return o.store.RevokeToken(ctx, id)
}

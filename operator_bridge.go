package inbox

import (
	"context"
	"slices"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
)

// CreateBridgeToken mints a bearer token for a bridge, whose client has the name; agent limits it to one agent, scopes to some
// of exchange.AllBridgeScopes. Tokens of one name share one queue.
func (o *Operator) CreateBridgeToken(ctx context.Context, name, agent string, scopes []string) (string, exchange.Token, error) {
	if contract.Slug(name) != name || name == "" {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a bridge's name must be small letters, digits and hyphens between them")
	}
	if len(scopes) == 0 {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a bridge's token needs a scope: send, pending or ack")
	}
	for _, scope := range scopes {
		if !slices.Contains(exchange.AllBridgeScopes(), scope) {
			return "", exchange.Token{}, fault.Newf(fault.Malformed, "there is no scope %q: write some of send, pending, ack", scope)
		}
	}
	return o.createToken(ctx, name, agent, exchange.BridgeScope(scopes))
}

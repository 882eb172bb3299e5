package pages

import (
	"cmp"
	"context"

	"inbox/exchange"
	"inbox/internal/design"
	"inbox/operator"
)

// stateReason is why an agent rests or is down; empty when it works or no one said.
func stateReason(agent operator.AgentSummary) string {
	switch {
	case agent.Paused != nil:
		return agent.Paused.Reason
	case agent.PausedWithAll != nil:
		return agent.PausedWithAll.Reason
	case agent.Down != nil:
		return agent.Down.Reason
	}
	return ""
}

// scopeName says what a token opens.
func scopeName(ctx context.Context, scope string) string {
	switch scope {
	case exchange.TokenPeer, operator.ScopePeer:
		return text(ctx, "Agents, as a caller")
	case exchange.TokenRead:
		return text(ctx, "Console and API: reads")
	case exchange.TokenWork:
		return text(ctx, "Console and API: works")
	case exchange.TokenAdmin:
		return text(ctx, "Console and API: administers")
	}
	return scope
}

// tokenStatus is a status in a word; empty = all.
func tokenStatus(ctx context.Context, status string) string {
	switch status {
	case operator.TokenValid:
		return text(ctx, "Valid")
	case operator.TokenExpired:
		return text(ctx, "Expired")
	case operator.TokenRevoked:
		return text(ctx, "Revoked")
	}
	return text(ctx, "All")
}

func tokenKind(status string) string {
	if status == operator.TokenValid {
		return design.OK
	}
	return design.Plain
}

// tokenAgent is which agents a token opens.
func tokenAgent(ctx context.Context, token exchange.Token) string {
	if token.Agent == "" && token.Role() == exchange.RoleNone {
		return text(ctx, "All agents")
	}
	return cmp.Or(token.Agent, "–")
}

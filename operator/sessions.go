package operator

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/internal/config"
)

// Sessions are the browsers in which operators are signed in at the console.
type Sessions struct {
	Rows   SessionRows
	Config func() *config.Config
}

// SessionRows keeps sessions.
type SessionRows interface {
	ConsoleSessions(ctx context.Context, filter exchange.ConsoleSessionFilter) ([]exchange.ConsoleSession, error)
	EndConsoleSession(ctx context.Context, id string, owner exchange.SessionOwner) error
}

// SignedIn is one session with what it may do now.
type SignedIn struct {
	exchange.ConsoleSession

	Role exchange.Role `json:"role"` // exchange.RoleNone = it is over, and not removed yet
	By   string        `json:"by"`   // "token", or "login" for a login service
}

// List lists sessions, newest first.
func (s Sessions) List(ctx context.Context, filter exchange.ConsoleSessionFilter) ([]SignedIn, error) {
	found, err := s.Rows.ConsoleSessions(ctx, filter)
	rules, now := Rules(s.Config()), time.Now()
	list := make([]SignedIn, 0, len(found))
	for _, one := range found {
		signed := SignedIn{ConsoleSession: one, Role: rules.Role(one, now), By: "login"}
		if one.Token != nil {
			signed.By = "token"
		}
		list = append(list, signed)
	}
	return list, err
}

// End ends a session: one of the owner, or any where the owner is the zero value. fault.NotFound when there is none.
func (s Sessions) End(ctx context.Context, id string, owner exchange.SessionOwner) error {
	return s.Rows.EndConsoleSession(ctx, id, owner)
}

// Rules are the rules for sessions in the settings.
func Rules(c *config.Config) exchange.ConsoleRules {
	return exchange.ConsoleRules{
		Idle: c.Admin.SessionIdle, Admins: c.Admin.OIDC.Admins, Workers: c.Admin.OIDC.Workers, Readers: c.Admin.OIDC.Readers,
	}
}

package inbox

import (
	"context"
	"strings"
)

// RotateActorKey gives the account of an agent in the fediverse a new key; the name may be the domain, for the server's
// own account. The ids of accounts stay. It gives the id of the new key.
func (s *Server) RotateActorKey(ctx context.Context, name string) (string, error) {
	if strings.EqualFold(name, s.config.Domain) {
		name = ""
	}
	return s.activitypub.RotateKey(ctx, name)
}

// MoveAgent tells the followers of an agent that it is another account now, on another server. It gives that account's id.
func (s *Server) MoveAgent(ctx context.Context, agent, target string) (string, error) {
	return s.activitypub.Move(ctx, agent, target)
}

// UnmoveAgent lets the agent be here again.
func (s *Server) UnmoveAgent(ctx context.Context, agent string) error {
	return s.activitypub.Unmove(ctx, agent)
}

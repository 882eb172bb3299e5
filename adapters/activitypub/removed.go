package activitypub

import (
	"context"
	"strings"

	"inbox/identity"
	"inbox/internal/fault"
)

// Removed says whether there was an agent of the name that is not here any more: its keys still are. Other servers forget
// an account that is gone (410), and go on asking for one that cannot be found. A store that does not answer knows nothing.
func (s *site) Removed(ctx context.Context, name string) bool {
	if _, here := s.options.Directory.Agent(name); here || !identity.ValidAgentName(name) {
		return false
	}
	_, found, err := s.options.State.Get(ctx, keyNamespace, rsaPrefix+strings.ToLower(name))
	return err == nil && found
}

// noAgent is the answer at the addresses of an agent that is not here.
func (s *site) noAgent(ctx context.Context, name string) error {
	if s.Removed(ctx, name) {
		return fault.New(fault.Gone, "this agent was removed")
	}
	return fault.New(fault.NotFound, "no such agent")
}

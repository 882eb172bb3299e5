package inbox

import (
	"context"
	"time"

	"inbox/adapters/discovery"
)

// newDiscovery gathers the links of all adapters; discovery adds the profile page and sorts them.
func (s *Server) newDiscovery() (*discovery.Server, error) {
	address, links := s.activitypub.InstanceLinks()
	var contributors []discovery.Contributor
	for module := range s.channels.All() {
		if module.Links != nil {
			contributors = append(contributors, module.Links)
		}
	}
	return discovery.New(discovery.Options{
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, Version: Version, Directory: s.registry,
		Contributors: contributors, Subjects: []discovery.Subject{{Address: address, Links: links}}, Usage: usage{s}, Keys: s.keyring.Public, Contact: s.config.Operator.Contact, Repository: s.config.Operator.Source,
		Removed: s.wasAgent,
	})
}

// wasAgent reports whether an agent of the name was removed.
func (s *Server) wasAgent(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.activitypub.Removed(ctx, name)
}

// usage counts what NodeInfo publishes.
type usage struct{ server *Server }

// Usage counts answers given. Every agent of this server counts as active: it would answer if asked.
func (u usage) Usage(ctx context.Context) (discovery.Counts, error) {
	posts, err := u.server.store.LocalPosts(ctx)
	agents := int64(len(u.server.registry.Agents()))
	return discovery.Counts{ActiveMonth: agents, ActiveHalfyear: agents, LocalPosts: posts}, err
}

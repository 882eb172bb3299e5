package inbox

import (
	"context"
	"crypto/tls"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"inbox/adapters/bridge"
	"inbox/adapters/chat"
	"inbox/adapters/discovery"
	"inbox/agents/clienttool"
	"inbox/agents/pull"
	"inbox/console"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// certificate is that of the web server; nil without one.
func (s *Server) certificate() (*tls.Config, error) {
	if s.config.HTTP.CertFile == "" {
		return nil, nil
	}
	return httpserver.TLSConfig(s.config.HTTP.CertFile, s.config.HTTP.KeyFile, s.logger)
}

// pageRoutes are the agents' pages, at whose addresses other servers find the actor.
func (s *Server) pageRoutes() []httpserver.Route {
	routes := s.pages.Routes()
	for i := range routes {
		if routes[i].Pattern == console.ProfilePattern {
			routes[i].Handler = s.activitypub.AtProfile(routes[i].Handler)
		}
	}
	return routes
}

func (s *Server) buildHTTP() (err error) {
	s.pages = console.NewPages(s.registry, s.config.PublicURL, s.mailAddress, operatorLines(s.config)...).WithChat(s.takesGuests)
	found, err := s.newDiscovery()
	if err != nil {
		return err
	}
	var routes []httpserver.Route
	routes = append(routes, found.Routes()...)
	for module := range s.channels.All() {
		routes = append(routes, module.Routes...)
	}
	routes = append(routes, s.pageRoutes()...)
	routes = append(routes, s.pull.Routes()...)
	routes = append(routes, s.clientTools.Routes()...)
	routes = append(routes, console.NewPolicyPages(console.PolicyOptions{
		Demands: s.demands, Agents: s.registry, PublicURL: s.config.PublicURL, Mail: s.mailAddress,
	}).Routes()...)
	routes = append(routes, console.NewAPI(s.Operator()).Routes()...)
	s.routes = routes
	described, err := apiDescription(s.config.PublicURL).Routes(routes)
	if err != nil {
		return err
	}
	s.http, err = httpserver.New(httpserver.Options{
		Listen: s.config.HTTP.Listen, Flood: s.floodRates(), Routes: append(routes, described...), Checks: s.readiness(),
		TrustedProxies: s.config.HTTP.TrustedProxies, Inside: s.config.HTTP.Inside,
		MaxBodyBytes: int64(s.config.HTTP.MaxBodyBytes), MaxInFlight: s.bytesInFlight(), Grace: s.config.ShutdownGrace,
		CertFile: s.config.HTTP.CertFile, KeyFile: s.config.HTTP.KeyFile, Logger: s.logger,
	})
	return err
}

func (s *Server) mailAddress(agent exchange.AgentProfile) string {
	if s.email == nil {
		return ""
	}
	return agent.Name + "@" + s.MailDomain()
}

// apiDescription gathers what the rooms say about their routes.
func apiDescription(server string) console.Description {
	return console.Description{Version: Version, Server: server, Operations: slices.Concat(
		chat.Operations(), bridge.Operations(), pull.Operations(), clienttool.Operations(), console.Operations(),
	)}
}

// usualBytesInFlight bounds request bodies in memory where the process has no memory limit.
const usualBytesInFlight = 256 << 20

// bytesInFlight bounds all request bodies in memory: as written, or an eighth of the memory limit of the process, since what
// is made of a body takes several times its room.
func (s *Server) bytesInFlight() int64 {
	if written := s.config.HTTP.MaxBytesInFlight; written > 0 {
		return int64(written)
	}
	limit := debug.SetMemoryLimit(-1) // reads it
	if limit == math.MaxInt64 {
		return usualBytesInFlight
	}
	return max(limit/8, 3*int64(s.config.HTTP.MaxBodyBytes))
}

// networks are the proxies and the operator's own networks.
func (s *Server) networks() httpserver.Networks {
	return httpserver.Networks{Trusted: s.config.HTTP.TrustedProxies, Inside: s.config.HTTP.Inside}
}

// warnOfProxy tells the operator of a proxy that nobody declared: all of its clients are one for every limit.
func (s *Server) warnOfProxy() {
	if s.config.BehindUnknownProxy() {
		s.logger.Warn("public_url is reached from outside and http.listen is not, so there is a proxy: without http.trusted_proxies all its clients count as one for every limit",
			"public_url", s.config.PublicURL, "listen", s.config.HTTP.Listen)
	}
}

// drain turns readiness off and goes on as before until a balancer had time to see it.
func (s *Server) drain(ctx context.Context) {
	s.http.Drain()
	if s.config.Drain <= 0 {
		return
	}
	s.logger.Info("the server stops: it is not ready any more and goes on for a moment", "drain", s.config.Drain)
	wait := time.NewTimer(s.config.Drain)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// readiness are the conditions of /readyz: what this node needs to accept a message and to work on it. How many messages
// wait is none of them: a second node does not take more of them because this one hears nothing new.
func (s *Server) readiness() []httpserver.Check {
	return []httpserver.Check{
		{Name: "database", Run: s.store.Probe},
		{Name: "queue", Run: func(context.Context) error { return s.queue.Check() }},
		{Name: "disk", Run: func(context.Context) error {
			if s.closed.disk.Full() {
				return fault.New(fault.Unavailable, "there is no room on the disk")
			}
			return nil
		}},
		{Name: "listeners", Run: s.checkListeners},
	}
}

// checkListeners reports whether every channel that listens beside HTTP, such as mail, takes connections.
func (s *Server) checkListeners(context.Context) error {
	for _, listener := range s.listeners {
		if !listener.served.Load() {
			return fault.Newf(fault.Unavailable, "the channel %s takes no connections", listener.channel)
		}
	}
	return nil
}

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

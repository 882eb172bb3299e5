package inbox

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/chat"
	"inbox/adapters/email"
	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/pull"
	"inbox/console"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/normalized"
)

func (s *Server) buildEngine() error {
	caller, err := s.newCaller()
	if err != nil {
		return err
	}
	base, err := url.Parse(s.config.PublicURL)
	if err != nil {
		return fmt.Errorf("public_url: %w", err)
	}
	s.delivery = delivery.New(delivery.Options{
		Store: s.store.Deliverer(), Channels: s.channels, Refused: s.refusedDelivery, Listens: s.listens, PerKey: s.config.Queue.DeliveryConcurrency,
		Active: s.config.Queue.DeliveryConcurrency, Logger: s.logger,
	})
	s.closed = s.newClosed()
	s.pipeline = pipeline.New(pipeline.Options{
		Closed: s.closed,
		Limits: s.limits(),
		Store:  s.store.Pipeline(), Agents: s.registry, Channels: s.channels, Blobs: s.blobs, Logger: s.logger, Deliveries: s.delivery,
		Demands: s.demands, Caller: s.unlessBlocked(caller), Moderator: s.lists, Limiters: s.limiters(), Quotas: s.quotas(), KnownAgent: s.ofPeer, BaseURL: base,
		Documents: s.store.State(), Approvers: openers{s.channels}, OperatorAddress: s.operatorAddress(),
		Requested: s.clientTools.Requested, Reserve: func(job queue.NewJob) *queue.Reservation { return s.queue.Reserve(job) },
	})
	s.clientTools.Bind(s.pipeline)
	s.demands.Bind(s.pipeline)
	s.queue = queue.New(s.store.Queue(), queue.Options{Lease: s.config.Queue.Lease, Grace: s.config.ShutdownGrace, Logger: s.logger})
	s.queue.Handle(pipeline.JobKind, queue.KindOptions{Concurrency: s.config.Queue.TurnConcurrency, Limit: s.pipeline.Limit}, s.pipeline.Run)
	s.handleNotices()
	s.handleEvents()
	// A call mostly waits for the other agent, so many of them cost little.
	s.queue.Handle(pipeline.DispatchKind, queue.KindOptions{Concurrency: 4 * s.config.Queue.TurnConcurrency}, s.pipeline.RunDispatch)
	s.handleApprovals(pipeline.ApprovalKind, s.pipeline.RunApproval)
	s.queue.Handle(pipeline.AckKind, queue.KindOptions{Concurrency: approvalConcurrency}, s.pipeline.RunAck)
	return nil
}

// ofPeer reports whether an address is on a domain whose agents the operator named as peers.
func (s *Server) ofPeer(address identity.Address) bool {
	return slices.ContainsFunc(s.config.Peers, func(peer config.Peer) bool { return peer.Domain == address.Domain })
}

// limits are those of the contract; plain http in links only where private peers are allowed.
func (s *Server) limits() normalized.Limits {
	limits := normalized.DefaultLimits()
	limits.AllowHTTP = s.config.Federation.AllowPrivate
	return limits
}

func (s *Server) openActivityPub() (module exchange.Module, err error) {
	s.activitypub, err = activitypub.New(activitypub.Options{
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, Version: Version,
		Receiver: s.pipeline, Directory: s.registry, Threads: s.store, Replies: s.store, State: s.vault(),
		Amender: s.pipeline, Timeline: s.pipeline, Records: reportRecords{s},
		Outbox: outbox{s.store}, Client: s.client.Refusing(s.unlisted),
		HostAllowed: s.hostAllowed, ActorAllowed: s.actorAllowed, NamesLocal: s.namesLocal,
		AllowPrivate: s.config.Federation.AllowPrivate, Mode: s.config.Federation.Mode,
		UnsignedHost: !s.config.Federation.RequireSignedHost, MaxRefusals: s.maxRefusals(),
		Follows: s.follows, Stopped: s.stopped, FollowersOnly: s.followersOnly, Fields: operatorFields(s.config),
		AnswersAgents: s.answersAgents, Likes: s.likes, EmptyMention: activitypub.EmptyGreet,
		Present: s.demands.Present, Blobs: s.blobs, Profile: s.fediverseProfile, Recent: s.store,
		PublicReplies: s.config.Federation.PublicReplies, PostLength: s.config.Federation.PostLength,
		FollowersGetReplies: s.config.Federation.FollowersGetReplies, AuthorizedFetch: s.config.Federation.AuthorizedFetch,
		Alive: s.hostAlive,
		Policy: exchange.Policy{
			Schedule: s.config.Federation.Retry,
			Limits: exchange.DeliveryLimits{
				Concurrency: s.config.Federation.HostConcurrency, PerSecond: float64(s.config.Federation.HostRate), WaitsTogether: true,
			},
			Conversation: exchange.ConversationLimits{Same: s.config.Limits.SameMessages},
		},
	})
	if err != nil {
		return module, err
	}

	module = s.activitypub.Module()
	module.Background = append(module.Background, s.prepareKeys)
	options := queue.KindOptions{Concurrency: s.config.Queue.DeliveryConcurrency, MaxAttempts: len(s.config.Federation.Retry) + 1}
	for _, kind := range []string{activityJob, activityBulkJob} { // what is no reply, such as Accept and Move
		module.Jobs = append(module.Jobs, exchange.Job{Kind: kind, Options: options, Handler: s.sendActivity(s.activitypub)})
	}
	return module, nil
}

// maxRefusals is the adapter's own limit, or none where requests are not limited by address at all.
func (s *Server) maxRefusals() int {
	if len(s.config.Limits.HTTP) > 0 {
		return 0
	}
	return -1
}

func (s *Server) answersAgents(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.AnswerAgents
}

// likes reports whether an agent acknowledges a note by liking it.
func (s *Server) likes(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.AckLike
}

// maxHops is the ceiling of an agent for chains of agents.
func (s *Server) maxHops(name string) int {
	if entry, known := s.registry.Lookup(name); known {
		return entry.Settings.MaxHops
	}
	return agents.DefaultMaxHops
}

func (s *Server) openA2A() (module exchange.Module, err error) {
	tokens, err := s.newWebTokens()
	if err != nil {
		return module, err
	}

	s.a2a, err = a2a.New(a2a.Options{
		Verifier: tokens, Peers: s.takesPeer, Issuers: s.issuerCards(), CardKeys: s.keyring.SigningAll,
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, SupportedInbound: s.inbound(),
		Receiver: s.pipeline, Directory: s.registry, Turns: s.store, Runs: s.pipeline, Tokens: s.store,
		Claims: s.store.State(), Blobs: s.blobs, Logger: s.logger, Believer: s.validator, Present: s.demands.Present,
		Push: s.newPush(), WebhookConcurrency: s.config.Queue.DeliveryConcurrency, CallerConcurrency: s.config.A2A.CallerConcurrency, GRPCPace: httpserver.NewPace(s.floodRates(), s.networks()), GRPCClient: s.networks().Client, GRPCAddress: s.grpcAddress, DefaultAgent: s.config.A2A.DefaultAgent,
		Operator: s.config.Operator.Name, Contact: s.config.Operator.Contact, OperatorURL: s.config.Operator.Privacy,
	})
	if err != nil {
		return module, err
	}

	module = s.a2a.Module()
	if s.config.A2A.GRPCListen == "" {
		return module, nil
	}
	security, err := s.certificate()
	if err != nil {
		return module, err
	}
	s.grpc = s.a2a.NewGRPC(s.config.A2A.GRPCListen, security, s.config.ShutdownGrace)
	module.Listeners = append(module.Listeners, s.grpc)
	return module, nil
}

// grpcAddress is where peers reach gRPC: as the operator wrote it, or the public host with the listener's port.
func (s *Server) grpcAddress() string {
	switch {
	case s.config.A2A.GRPCAddress != "":
		return s.config.A2A.GRPCAddress
	case s.grpc == nil || s.grpc.Addr() == nil:
		return ""
	}
	public, err := url.Parse(s.config.PublicURL)
	if err != nil {
		return ""
	}
	_, port, _ := net.SplitHostPort(s.grpc.Addr().String())
	return net.JoinHostPort(public.Hostname(), port)
}

// certificate is that of the web server; nil without one.
func (s *Server) certificate() (*tls.Config, error) {
	if s.config.HTTP.CertFile == "" {
		return nil, nil
	}
	return httpserver.TLSConfig(s.config.HTTP.CertFile, s.config.HTTP.KeyFile, s.logger)
}

func (s *Server) openEmail() (module exchange.Module, err error) {
	options := email.Options{
		Domain: s.config.Domain, Hostname: s.config.SMTP.Hostname, Listen: s.config.SMTP.Listen,
		MaxMessageBytes: int64(s.config.SMTP.MaxMessageBytes), MaxUnprovenBytes: int64(s.config.SMTP.UnprovenMaxBytes), MaxConnections: s.config.SMTP.MaxConnections,
		MaxConnectionsPerIP: s.config.SMTP.ConnectionsPerAddress, ConnectionsPerMinute: s.config.SMTP.ConnectionsPerMinute,
		MailsPerMinute: s.config.SMTP.MailsPerMinute, ARCSealers: s.config.Mail.ARCSealers, RefuseQuarantine: s.config.Mail.RefuseQuarantine, AllowPrivate: s.config.Federation.AllowPrivate,
		Mode: s.config.Mail.Mode, Smarthost: s.config.Mail.Smarthost.Reveal(),
		DKIMSelector: s.config.Mail.DKIMSelector, DKIMKeyFile: s.config.Mail.DKIMKeyFile, ShutdownTimeout: s.config.ShutdownGrace,
		Receiver: s.pipeline, Agents: s.registry, Threads: s.store, State: s.vault(), Blobs: s.blobs,
		Resolver: s.resolver, Logger: s.logger, Present: s.demands.Present, MaxHops: s.maxHops, Refuses: s.refusesAddress,
	}
	s.mailDelivery(&options)
	if err := s.mailTransport(&options); err != nil {
		return module, err
	}
	if s.email, err = email.New(options); err != nil {
		return module, err
	}
	return s.email.Module(), nil
}

// mailTransport lets mail leave to the smarthost, which the operator wrote, and offers STARTTLS where the web server has
// a certificate.
func (s *Server) mailTransport(options *email.Options) (err error) {
	options.Dialer = s.client
	if options.Mode == email.ModeSmarthost {
		address, err := email.SmarthostAddress(options.Smarthost)
		if err != nil {
			return err
		}
		options.Dialer = s.client.Trusting(address)
	}
	options.TLSConfig, err = s.certificate()
	return err
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

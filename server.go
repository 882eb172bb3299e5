// Package inbox ties the rooms of the server together: configuration, database, queue, pipeline, delivery, the three
// adapters, agents and the HTTP server. The command line uses it, and so can programs that embed the server: New,
// Register agents, Run. It holds no logic of its own.
package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/operator"
)

// Server is one node. Any number of nodes may share a PostgreSQL database.
//
// It is built from the ground up: resources, trust, agents, engine, modules, web. Each of them embeds the one below and sees nothing above
// itself; the order is that of New.
type Server struct {
	*web

	ready   atomic.Bool // notifications may come before everything is there
	sockets Sockets     // nil = the server opens all of them
}

// New opens the database and builds the rooms, with channels of the embedding program beside those of the server; nothing listens
// yet. Its errors are one clear sentence each. The context bounds the opening only.
func New(ctx context.Context, config *Config, more ...OpenChannel) (*Server, error) {
	return open(ctx, config, nil, more, false)
}

// open is New; a further domain stands beside top, which has the listeners. A quiet server logs nothing.
func open(ctx context.Context, config *Config, top *modules, more []OpenChannel, quiet bool) (_ *Server, err error) {
	s := &Server{}
	resources, err := openResources(ctx, config, top, quiet, s.changed, s.changedElsewhere)
	if err != nil {
		return nil, err
	}
	var further []*Server
	defer func() {
		if err != nil {
			for _, other := range further {
				err = errors.Join(err, other.Close())
			}
			err = errors.Join(err, resources.closeStorage())
		}
	}()

	trust, err := newTrust(ctx, resources)
	if err != nil {
		return nil, err
	}

	agentSet, err := newAgents(trust, s.wakeTurns)
	if err != nil {
		return nil, err
	}

	engine, err := newEngine(ctx, agentSet)
	if err != nil {
		return nil, err
	}

	modules, err := openModules(engine, more)
	if err != nil {
		return nil, err
	}

	for _, one := range config.Hosted {
		other, err := open(ctx, one, modules, nil, quiet)
		if err != nil {
			return nil, fmt.Errorf("domain %s: %w", one.Domain, err)
		}
		further = append(further, other)
		other.top, engine.further = engine, append(engine.further, other.engine)
	}

	if s.web, err = newWeb(modules, further); err != nil {
		return nil, err
	}

	s.probe = newSelfProbe(s)
	if top == nil { // further domains stand on the same disk and behind the same listeners
		engine.observe = s.observeNode
	}
	s.ready.Store(true)
	return s, nil
}

// changed passes on what this node committed.
func (s *Server) changed(channel, payload string) {
	if s.ready.Load() && channel == store.ChannelTurn {
		s.pipeline.Changed(payload)
		return
	}
	s.wake(channel, payload)
}

// changedElsewhere passes on what another node or a command committed.
func (s *Server) changedElsewhere(channel, payload string) {
	if s.ready.Load() && channel == store.ChannelTurn {
		s.pipeline.ChangedElsewhere(payload)
		return
	}
	s.wake(channel, payload)
}

// wake passes on what is the same wherever it was committed.
func (s *Server) wake(channel, payload string) {
	if !s.ready.Load() {
		return
	}
	switch channel {
	case store.ChannelJob:
		s.queue.Wake(payload)
	case store.ChannelLists:
		s.lists.Wake()
		s.wakeErasures()
	case store.ChannelTokens:
		s.tokens.Changed()
	case store.ChannelBridge:
		s.bridge.Wake(payload)
	}
}

// wakeTurns is told that an agent can have more turns at once than before.
func (s *Server) wakeTurns(string) {
	if s.ready.Load() {
		s.queue.Wake(pipeline.JobKind)
	}
}

// Register adds an agent of the embedding program. Call it before Run. The name must be free.
func (s *Server) Register(profile exchange.AgentProfile, agent agents.Agent, settings agents.Settings) error {
	profile.Address = identity.Address{Local: profile.Name, Domain: s.config.Domain}.String()
	return s.register(agents.Entry{Agent: agent, Profile: profile, Settings: settings})
}

// Reload reads the file and the environment of the start again and takes over what can be changed while the server runs, at once and
// as a whole; the answer names the rest. Its error, as that of LoadConfig, changes nothing; both are logged.
func (s *Server) Reload(ctx context.Context) (operator.Reloaded, error) { return s.reload(ctx) }

// Config returns the settings that the server was started with.
func (s *Server) Config() *Config { return s.config }

// Agents returns the profiles of the agents, in the order of the configuration.
func (s *Server) Agents() []exchange.AgentProfile { return s.registry.Agents() }

// MailDomain returns the part of mail addresses after the @.
func (s *Server) MailDomain() string { return identity.HostOf(s.config.Domain) }

// MailAddr returns the address of the mail listener; empty when email is off or before Listen.
func (s *Server) MailAddr() string {
	if s.email == nil || s.email.Addr() == nil {
		return ""
	}
	return s.email.Addr().String()
}

// HTTPAddr returns the address of the HTTP listener after Listen.
func (s *Server) HTTPAddr() net.Addr { return s.http.Addr() }

// AdminAddr returns the address of the operator's own listener; empty without one or before Listen.
func (s *Server) AdminAddr() string {
	if s.admin == nil || s.admin.Addr() == nil {
		return ""
	}
	return s.admin.Addr().String()
}

// GRPCAddr returns the address of the gRPC listener; empty when it is off or before Listen.
func (s *Server) GRPCAddr() string {
	if s.grpc == nil || s.grpc.Addr() == nil {
		return ""
	}
	return s.grpc.Addr().String()
}

// Sockets are listeners that another program has opened for this one.
type Sockets interface {
	// Take returns the listener of a name, once; nil without one.
	Take(name string) net.Listener
}

// Inherit makes Listen use sockets of others in the place of those that it would open: "https" or, without TLS, "http" for http.listen,
// "http" for acme.http_listen, "smtp", "grpc" and "admin". What is off in the settings is off.
func (s *Server) Inherit(sockets Sockets) { s.sockets = sockets }

// inheriting is a listener that can serve on a socket of others.
type inheriting interface{ Use(listener net.Listener) }

// socketsOfChannels are the names of sockets that are not those of their channels.
var socketsOfChannels = map[string]string{"email": "smtp", "a2a": "grpc"}

// open takes the socket of a name, or the configured address.
func (s *Server) open(listener interface{ Listen() error }, name string) error {
	if user, can := listener.(inheriting); can && s.sockets != nil {
		if socket := s.sockets.Take(name); socket != nil {
			user.Use(socket)
			return nil
		}
	}
	return listener.Listen()
}

// Listen takes the configured addresses. Run does it when it was not done before.
func (s *Server) Listen() error {
	if err := s.now().checkDefaultAgent(); err != nil {
		return err
	}

	web := "https"
	if s.config.HTTP.TLS == "off" {
		web = "http"
	}
	if err := s.open(s.http, web); err != nil {
		return err
	}

	for _, listener := range s.listeners {
		name := cmp.Or(listener.socket, socketsOfChannels[listener.channel], listener.channel)
		if err := s.open(listener.Listener, name); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), firstTokenLimit)
	defer cancel()
	for _, one := range s.domains() {
		if err := one.Operator().Tokens.EnsureAdmin(ctx, one.config.DataDir); err != nil {
			return err
		}
	}
	return nil
}

// domains are the server as each of its domains has it, that with the listeners first.
func (s *Server) domains() []*Server { return append([]*Server{s}, s.further...) }

// firstTokenLimit bounds the writing of the first operator token. It comes after the listeners, so that a server that
// cannot start says one sentence only.
const firstTokenLimit = 10 * time.Second

// Run serves until ctx ends, or until the operator says so by the API. Then it is not ready any more, serves on for drain, stops accepting, lets requests and runs
// end within shutdown_grace, returns what is left for the next start or another node, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeLogged()
	if s.http.Addr() == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}

	var addresses []string
	for _, one := range s.domains() {
		for _, agent := range one.Agents() {
			addresses = append(addresses, agent.Address)
		}
	}

	s.logger.Info("inbox is ready", "version", Version, "domain", s.config.Domain, "http", s.HTTPAddr().String(), "smtp", s.MailAddr(), "admin", s.AdminAddr(),
		"agents", strings.Join(addresses, " "))
	s.warnOfProxy()
	s.warnOfOrphans()

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	edge, edgeCtx := errgroup.WithContext(serving)
	edge.Go(func() error {
		select {
		case <-ctx.Done():
			s.drain(edgeCtx)
			stopServing()
		case <-s.stopAsked.asked:
			s.drain(edgeCtx)
			stopServing()
		case <-edgeCtx.Done(): // a listener failed
		}
		return nil
	})

	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var backs []*errgroup.Group
	for _, one := range s.domains() {
		one.warnOfClosedTools()
		back := one.background(work)
		if one == s {
			back.Go(func() error { return s.retainOrphans(work) })
		}
		backs = append(backs, back)
		one.serveEdge(edgeCtx, edge)
	}

	edge.Go(func() error { return s.http.Run(edgeCtx) })
	err := ignoreCancelled(edge.Wait())
	stopWork()
	for _, back := range backs {
		err = errors.Join(err, ignoreCancelled(back.Wait()))
	}
	return err
}

// serveEdge runs what peers reach beside HTTP, and what obtains certificates.
func (s *Server) serveEdge(ctx context.Context, edge *errgroup.Group) {
	for _, listener := range s.listeners {
		listener.served.Store(true)
		edge.Go(func() error {
			defer listener.served.Store(false)
			return listener.Run(ctx)
		})
	}
	edge.Go(func() error { s.probe.run(ctx); return nil })
	if s.acme != nil {
		edge.Go(func() error { return s.acme.Run(ctx) })
	}
}

// background runs what must outlive the listeners: requests that wait for an answer need the queue.
func (s *Server) background(ctx context.Context) *errgroup.Group {
	back, ctx := errgroup.WithContext(ctx)
	back.Go(func() error { return s.store.Listen(ctx) })
	back.Go(func() error { return s.store.IndexWords(ctx) })
	back.Go(func() error { return s.runLists(ctx) })
	back.Go(func() error { return s.runMeter(ctx) })
	back.Go(func() error { return s.availability.backlog.Run(ctx) })
	back.Go(func() error { return s.signNode(ctx) })
	back.Go(func() error { return s.runTokens(ctx) })
	back.Go(func() error { return s.serveTools(ctx) })
	back.Go(func() error {
		return s.whileInTime(ctx, s.queue.Run, s.demands.Run, s.notices.Run, s.sweepBlobs, s.retain, s.examine, s.countHours, s.runErasures, s.stopErased, s.pipeline.ExpireTools, s.pipeline.WatchBackEnds,
			s.endTakeovers, s.lookForLost)
	})

	for module := range s.channels.All() {
		for _, work := range module.Background {
			back.Go(func() error { return work(ctx) })
		}
	}

	return back
}

func (s *Server) endTakeovers(ctx context.Context) error {
	return s.pipeline.EndTakeovers(ctx, func() time.Duration { return s.now().config.Operator.TakeoverIdle })
}

// Close ends a server that is not going to run.
func (s *Server) Close() (err error) {
	for _, other := range s.further {
		err = errors.Join(err, other.Close())
	}
	s.endAgents()
	return errors.Join(err, s.closeStorage())
}

func (s *Server) closeLogged() {
	if err := s.Close(); err != nil {
		s.logger.Warn("the database did not close cleanly", "error", err)
	}
}

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Config is every setting of the server; docs/configuration.md describes each key.
type Config = config.Config

// LoadConfig reads the file (none = development mode) and INBOX_… variables of the environment, and validates. Its
// error names key, place and remedy of every problem.
func LoadConfig(file string, environment []string) (*Config, error) {
	return config.Load(file, environment)
}

// Version is the version of this build; the build sets it with -ldflags "-X inbox.Version=…".
var Version = "0.1.0-dev"

// Commit is the commit of a release. The build sets it like Version; without it a build has what the compiler noted of the working copy.
var Commit string

// Date is the time of Commit, in RFC 3339.
var Date string

// Build describes the running program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit; empty where the build recorded none
	Date     string `json:"date,omitempty"`     // of the commit, in RFC 3339
	Modified bool   `json:"modified,omitempty"` // the working copy had changes that are in no commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildInfo describes the running program.
func BuildInfo() Build {
	build := Build{Version: Version, Revision: Commit, Date: Date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok || build.Revision != "" {
		return build
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			build.Revision = setting.Value
		case "vcs.time":
			build.Date = setting.Value
		case "vcs.modified":
			build.Modified = setting.Value == "true"
		}
	}
	return build
}

package inbox

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/chat"
	"inbox/adapters/discovery"
	"inbox/adapters/tasks"
	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/files"
	"inbox/agents/pull"
	"inbox/console"
	"inbox/console/handbook"
	"inbox/console/pages"
	"inbox/console/public"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// web is what the node serves by HTTP: the routes of all rooms behind one listener.
type web struct {
	*modules

	pages  *public.Pages
	routes []httpserver.Route // of all rooms, for their description
	own    []httpserver.Route // of these the operator's, which are at admin.listen where there is one

	api     *console.API
	console *pages.Pages
	http    *httpserver.Server
	admin   *httpserver.Server // nil = the operator API is at http
	plain   *httpserver.Server // nil = there is none without TLS beside http
	probe   *selfProbe         // set before anything is served

	front   *httpserver.Server // that listens for http: itself, or that of the domain at the top
	further []*Server          // domains behind the same listeners
}

// newWeb makes the listeners of a node. Those of a further domain do not listen: their requests come from those of the domain at the top.
func newWeb(below *modules, further []*Server) (*web, error) {
	w := &web{modules: below, further: further}
	w.pages = w.newPages()
	found, err := w.newDiscovery()
	if err != nil {
		return nil, err
	}

	w.routes = append(w.routes, found.Routes()...)
	for module := range w.channels.All() {
		w.routes = append(w.routes, module.Routes...)
	}

	w.routes = append(w.routes, w.pageRoutes()...)
	w.routes = append(w.routes, w.pull.Routes()...)
	w.routes = append(w.routes, w.clientTools.Routes()...)
	w.routes = append(w.routes, w.files.Routes()...)
	w.routes = append(w.routes, console.NewPolicyPages(console.PolicyOptions{
		Demands: w.demands, Agents: w.registry, PublicURL: w.config.PublicURL, Mail: w.mailAddress,
	}).Routes()...)

	w.api = console.NewAPI(w.operatorHere()).WithChat(w.chat)
	if w.console, err = w.newConsole(); err != nil {
		return nil, err
	}
	w.own = slices.Concat(w.api.Routes(), w.console.Routes())
	w.routes = append(w.routes, w.own...)
	described := apiDescription(w.config.PublicURL).Routes(w.routes)

	security, err := w.certificate(w.config.PublicHost(), true)
	if err != nil {
		return nil, err
	}

	w.http, err = httpserver.New(httpserver.Options{
		Listen: w.config.HTTP.Listen, Flood: w.floodRates(), Routes: append(w.publicRoutes(), described...), Checks: w.readiness(),
		Metrics:        w.readsMetrics(),
		TrustedProxies: w.config.HTTP.TrustedProxies, Inside: w.config.HTTP.Inside,
		MaxBodyBytes: int64(w.config.HTTP.MaxBodyBytes), Bodies: w.bodies, Grace: w.config.ShutdownGrace,
		TLS: security, Logger: w.logger, LogRequests: w.config.Log.Access, Hold: w.tokens.HoldRequest,
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.openPlainHTTP(), w.openAdmin()); err != nil {
		return nil, err
	}
	w.front = w.http
	return w, w.hostFurther()
}

// hostFurther lets the listeners serve the further domains, each by its hosts.
func (w *web) hostFurther() error {
	for _, other := range w.further {
		hosts := other.config.WebHosts()
		w.http.Host(other.http, hosts...)
		other.front = w.http
		if w.admin != nil {
			w.admin.Host(other.admin, hosts...)
		}
		if w.plain != nil {
			w.plain.Host(other.plain, other.config.CertificateNames()...)
		}
		if w.email != nil {
			w.email.Host(other.email)
		}

		security, err := other.certificate(other.config.PublicHost(), true)
		if err != nil {
			return err
		}
		if security == nil {
			continue
		}
		for _, host := range append(hosts, other.config.CertificateNames()...) {
			w.certificates[host] = security.GetCertificate
		}
	}
	return nil
}

// listenWith adds a listener, unless the domain is a further one.
func (w *web) listenWith(server *httpserver.Server, channel, socket string) {
	if w.config.HostedBy == "" {
		w.listeners = append(w.listeners, &listening{Listener: server, channel: channel, socket: socket})
	}
}

// assetRoutes are the files that pages load, which are the same at every listener.
func assetRoutes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: design.AssetPattern, Handler: design.Assets()},
		{Method: http.MethodGet, Pattern: design.FaviconPath, Handler: design.Favicon()},
	}
}

// publicRoutes are those of http.listen: all, or all but the operator's where admin.listen has them.
func (w *web) publicRoutes() []httpserver.Route {
	routes := slices.Clone(w.routes)
	if w.config.Admin.Listen == "" {
		return routes
	}
	taken := map[string]bool{}
	for _, route := range w.own {
		taken[route.Method+route.Pattern] = true
	}
	return slices.DeleteFunc(routes, func(route httpserver.Route) bool { return taken[route.Method+route.Pattern] })
}

// readsMetrics says who reads /metrics at http.listen; nil = it is at admin.listen.
func (w *web) readsMetrics() func(*http.Request) error {
	if w.config.Admin.Listen != "" {
		return nil
	}
	return w.orByToken(func(r *http.Request) error { return cmp.Or(httpserver.Inside(r), w.named(r)) })
}

// orByToken lets operators' tokens open what their bearers may not see without.
func (w *web) orByToken(check func(*http.Request) error) func(*http.Request) error {
	return func(r *http.Request) error {
		refused := check(r)
		if refused == nil || bearer.Of(r) == "" {
			return refused
		}
		return w.api.MayRead(r)
	}
}

// named refuses a request for a host that is not this server's.
func (w *web) named(r *http.Request) error {
	return httpserver.Named(r, append(w.config.WebHosts(), w.config.CertificateNames()...)...)
}

// openAdmin opens the operator's own listener.
func (w *web) openAdmin() error {
	if w.config.Admin.Listen == "" {
		return nil
	}

	options := httpserver.Options{
		Key: "admin.listen", Listen: w.config.Admin.Listen, Flood: w.floodRates(), Routes: slices.Concat(w.own, assetRoutes(), handbook.New(w.config.Domain, documents).Routes()), Checks: w.readiness(),
		Metrics:        w.orByToken(w.named),
		TrustedProxies: w.config.HTTP.TrustedProxies, Inside: w.config.HTTP.Inside,
		MaxBodyBytes: int64(w.config.HTTP.MaxBodyBytes), Bodies: w.bodies, Grace: w.config.ShutdownGrace, Logger: w.logger, LogRequests: w.config.Log.Access, Hold: w.tokens.HoldRequest,
	}
	if !w.config.Admin.IsLocal() {
		var err error
		if options.TLS, err = w.certificate(w.config.PublicHost(), false); err != nil {
			return err
		}
	}

	var err error
	if w.admin, err = httpserver.New(options); err == nil {
		w.listenWith(w.admin, "operator API", "admin")
	}
	return err
}

// openPlainHTTP opens the listener beside that with TLS: the certificate authority comes to it, and browsers are sent on.
func (w *web) openPlainHTTP() error {
	if w.acme == nil || w.config.ACME.HTTPListen == "" {
		return nil
	}

	names, onwards := w.config.CertificateNames(), w.acme.Challenges(http.NotFoundHandler())
	plain, err := httpserver.New(httpserver.Options{
		Key: "acme.http_listen", Listen: w.config.ACME.HTTPListen, WithoutHealth: true, Flood: w.floodRates(), Inside: w.config.HTTP.Inside,
		TrustedProxies: w.config.HTTP.TrustedProxies, Grace: w.config.ShutdownGrace, Logger: w.logger, LogRequests: w.config.Log.Access,
		Routes: []httpserver.Route{
			{Method: http.MethodGet, Pattern: "/.well-known/acme-challenge/{token}", Handler: onwards},
			{Method: http.MethodGet, Pattern: "/*", Handler: redirectToHTTPS(names)},
		},
	})
	if err == nil {
		w.plain = plain
		w.listenWith(plain, "http without TLS", "http")
	}
	return err
}

// redirectToHTTPS sends a browser to the same address under https, where the host is one of names. The port is the usual one: that of
// the listener may be behind a packet filter which maps it.
func redirectToHTTPS(names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.ToLower(identity.HostOf(r.Host))
		if !slices.Contains(names, host) {
			httpserver.WriteFault(w, fault.New(fault.NotFound, "nothing is at this address"))
			return
		}
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect) //nolint:gosec // the host is one of ours
	})
}

// pageRoutes are the agents' pages, at whose addresses other servers find the actor, and the files that pages load.
func (w *web) pageRoutes() []httpserver.Route {
	routes := append(w.pages.Routes(), handbook.New(w.config.Domain, documents).Routes()...)
	for i := range routes {
		if routes[i].Pattern == public.ProfilePattern {
			routes[i].Handler = w.activitypub.AtProfile(routes[i].Handler)
		}
	}
	routes = append(routes, httpserver.Route{Method: http.MethodGet, Pattern: design.AvatarPattern, Handler: design.Avatars(func(name string) string {
		agent, _ := w.registry.Agent(name)
		return agent.Address
	})})
	return append(routes, assetRoutes()...)
}

// newPages makes the agents' pages.
func (w *web) newPages() *public.Pages {
	return public.NewPages(public.Options{
		Agents: w.registry, PublicURL: w.config.PublicURL, Domain: w.config.Domain, Mail: w.mailAddress, Chat: w.takesGuests,
		Picture: func(agent string) string { return w.account(agent).Icon }, Hidden: func(agent string) bool { return w.account(agent).Hidden },
		Notes: w.publicNotes, Handling: w.handling, Operator: operatorLines(w.config),
		Federation: w.federation,
	})
}

func (w *web) publicNotes(ctx context.Context, agent string, limit int) ([]public.Note, error) {
	notes, err := w.activitypub.PublicNotes(ctx, agent, limit)
	shown := make([]public.Note, 0, len(notes))
	for _, note := range notes {
		shown = append(shown, public.Note(note))
	}
	return shown, err
}

// handling is what the settings say about what becomes of people's words.
func (w *web) handling(agent string) public.Handling {
	c := w.now().config
	told := public.Handling{Messages: c.Retention.Messages, Files: c.Retention.Files, Privacy: c.Operator.Privacy}
	for i := range c.Agents {
		if strings.EqualFold(c.Agents[i].Name, agent) {
			told.Messages, told.Files = c.Agents[i].Retention.Messages, c.Agents[i].Retention.Files
		}
	}
	if profile, known := w.registry.Agent(agent); known {
		told.ShowsTools = profile.ShowsTools
	}
	return told
}

// federation is what the settings and the adapter of the fediverse say about how this server deals with others.
func (w *web) federation() public.Federation {
	c, practice := w.now().config, w.activitypub.Practice()
	told := public.Federation{
		Domain: identity.HostOf(c.Domain), Host: c.PublicHost(), UserAgent: practice.UserAgent, Signer: practice.Signer, Agents: practice.Agents,
		Keys: practice.Keys, Accounts: practice.Accounts, Ancestors: practice.Ancestors, AncestorsOfOne: practice.AncestorsOfOne, Confirmations: practice.Confirmations,
		NoBots: practice.NoBots, StopWord: stopWord(c), AtOnce: c.Federation.HostConcurrency, PerSecond: c.Federation.HostRate,
		AllowlistOnly: c.Federation.Mode == activitypub.ModeAllowlist, AuthorizedFetch: c.Federation.AuthorizedFetch,
		Messages: c.Retention.Messages, Originals: c.Retention.Originals, Records: c.Retention.Records, Audit: c.Retention.AuditCeiling,
	}
	if w.email != nil {
		told.MailHost, told.Postmaster = c.SMTP.Hostname, "postmaster@"+told.Domain
	}
	return told
}

// stopWord is the first of the words by which people silence an agent; empty = there is none.
func stopWord(c *Config) string {
	words := append(slices.Clone(c.Limits.StopWords), moderation.DefaultStopWords...)
	if words[0] == "-" {
		return ""
	}
	return words[0]
}

func (w *web) mailAddress(agent exchange.AgentProfile) string {
	if w.email == nil {
		return ""
	}
	return agent.Name + "@" + identity.HostOf(w.config.Domain)
}

// apiDescription gathers what the rooms say about their routes.
func apiDescription(server string) console.Description {
	return console.Description{Version: Version, Server: server, Operations: slices.Concat(
		chat.Operations(), bridge.Operations(), tasks.Operations(), pull.Operations(), clienttool.Operations(), files.Operations(), console.Operations(),
	)}
}

// usualBytesInFlight bounds request bodies in memory where the process has no memory limit.
const usualBytesInFlight = 256 << 20

// bytesInFlight bounds all request bodies in memory: as written, or an eighth of the memory limit of the process, since what
// is made of a body takes several times its room. The largest request fits.
func (r *resources) bytesInFlight() int64 {
	if written := r.config.HTTP.MaxBytesInFlight; written > 0 {
		return int64(written)
	}
	limit := debug.SetMemoryLimit(-1) // reads it
	if limit == math.MaxInt64 {
		return usualBytesInFlight
	}
	return max(limit/8, 3*int64(r.config.HTTP.MaxBodyBytes), int64(r.config.A2A.MaxRequestBytes))
}

// warnOfProxy tells the operator of a proxy that the settings do not declare: all of its clients are one for every limit.
func (w *web) warnOfProxy() {
	if w.config.BehindUnknownProxy() {
		w.logger.Warn("public_url is reached from outside and http.listen is not, so there is a proxy: without http.trusted_proxies all its clients count as one for every limit",
			"public_url", w.config.PublicURL, "listen", w.config.HTTP.Listen)
	}
}

// warnOfClosedTools tells the operator of tools that no rule opens: a model never sees them, and nothing else would say why.
func (w *web) warnOfClosedTools() {
	for i := range w.config.Agents {
		if closed := w.config.Agents[i].ClosedTools(); len(closed) > 0 {
			w.logger.Warn("no rule opens these tools, so the model never sees them; inbox doctor names the rules to write", "agent", w.config.Agents[i].Name, "tools", closed)
		}
	}
}

// drain turns readiness off and goes on as before until a balancer had time to see it.
func (w *web) drain(ctx context.Context) {
	w.http.Drain()
	if w.config.Drain <= 0 {
		return
	}

	w.logger.Info("the server stops: it is not ready any more and goes on for a moment", "drain", w.config.Drain)
	wait := time.NewTimer(w.config.Drain)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// agentsState says that all agents are paused. The node is ready all the same: it takes messages.
func (w *web) agentsState() string {
	if _, paused := w.lists.PausedAll(); paused {
		return "paused"
	}
	return ""
}

// newDiscovery gathers the links of all adapters; discovery adds the profile page and sorts them.
func (w *web) newDiscovery() (*discovery.Server, error) {
	address, links := w.activitypub.InstanceLinks()
	var contributors []discovery.Contributor
	for module := range w.channels.All() {
		if module.Links != nil {
			contributors = append(contributors, module.Links)
		}
	}

	return discovery.New(discovery.Options{
		Domain: w.config.Domain, PublicURL: w.config.PublicURL, Version: Version, Directory: w.registry,
		Contributors: contributors, Subjects: []discovery.Subject{{Address: address, Links: links}}, Usage: usage{w.resources, w.registry}, Keys: w.keyring.Public, Contact: w.config.Operator.Contact, Repository: w.config.Operator.Source,
		About:   aboutFederation(w.config),
		Removed: w.wasAgent,
	})
}

// wasAgent reports whether an agent of the name was removed.
func (w *web) wasAgent(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return w.activitypub.Removed(ctx, name)
}

// usage counts what NodeInfo publishes.
type usage struct {
	*resources
	registry *agents.Registry
}

// Usage counts answers given. Every agent of this server counts as active: it would answer if asked.
func (u usage) Usage(ctx context.Context) (discovery.Counts, error) {
	posts, err := u.store.LocalPosts(ctx)
	agents := int64(len(u.registry.Agents()))
	return discovery.Counts{ActiveMonth: agents, ActiveHalfyear: agents, LocalPosts: posts}, err
}

// operatorLines are the same lines on the page of every agent.
func operatorLines(c *Config) []public.Field {
	var lines []public.Field
	for _, field := range operatorFields(c) {
		line := public.Field{Name: field.Name, Value: field.Value}
		switch field.Name {
		case "Contact":
			line.Href = "mailto:" + strings.TrimPrefix(field.Value, "@")
		case "Privacy", "Source":
			line.Href = field.Value
		}
		lines = append(lines, line)
	}
	return lines
}

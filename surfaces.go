package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/bridge/contract"
	"inbox/adapters/chat"
	"inbox/adapters/tasks"
	"inbox/agents"
	"inbox/agents/runtime/tool/request"
	"inbox/engine/pipeline"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/markup"
	"inbox/internal/queue"
	"inbox/internal/safehttp"
)

func (m *modules) openActivityPub() (module exchange.Module, err error) {
	m.activitypub, err = activitypub.New(activitypub.Options{
		Domain: m.config.Domain, PublicURL: m.config.PublicURL, Version: Version, About: aboutFederation(m.config),
		Receiver: m.pipeline, Directory: m.registry, Threads: m.store, Replies: m.store, State: m.vault(),
		Amender: m.pipeline, Timeline: m.pipeline, Records: reportRecords{m.resources},
		Outbox: outbox{m.store}, Client: m.client.Refusing(m.lists.unlisted),
		HostAllowed: m.lists.hostAllowed, ActorAllowed: m.lists.actorAllowed, NamesLocal: m.namesLocal,
		AllowPrivate: m.config.Federation.AllowPrivate, Mode: m.config.Federation.Mode,
		UnsignedHost: !m.config.Federation.RequireSignedHost, MaxRefusals: m.maxRefusals(),
		Follows: m.follows, Stopped: m.lists.stopped, FollowersOnly: m.followersOnly, Fields: operatorFields(m.config),
		AnswersAgents: m.answersAgents, Likes: m.likes, EmptyMention: activitypub.EmptyGreet,
		Present: m.demands.Present, Blobs: m.blobs, Profile: m.fediverseProfile, Recent: m.store,
		PublicReplies: m.config.Federation.PublicReplies, PostLength: m.config.Federation.PostLength,
		FollowersGetReplies: m.config.Federation.FollowersGetReplies, AuthorizedFetch: m.config.Federation.AuthorizedFetch,
		Alive: m.hostAlive,
		Policy: exchange.Policy{
			Schedule: m.config.Federation.Retry,
			Limits: exchange.DeliveryLimits{
				Concurrency: m.config.Federation.HostConcurrency, PerSecond: float64(m.config.Federation.HostRate), WaitsTogether: true,
			},
			Conversation: exchange.ConversationLimits{Same: m.config.Limits.SameMessages},
		},
	})
	if err != nil {
		return module, err
	}

	module = m.activitypub.Module()
	module.Background = append(module.Background, m.prepareKeys)
	options := queue.KindOptions{Concurrency: m.config.Queue.DeliveryConcurrency, MaxAttempts: len(m.config.Federation.Retry) + 1}
	for _, kind := range []string{activityJob, activityBulkJob} { // what is no reply, such as Accept and Move
		module.Jobs = append(module.Jobs, exchange.Job{Kind: kind, Options: options, Handler: m.sendActivity(m.activitypub)})
	}

	return module, nil
}

// maxRefusals is the adapter's own limit, or none where requests are not limited by address at all.
func (r *resources) maxRefusals() int {
	if len(r.config.Limits.HTTP) > 0 {
		return 0
	}
	return -1
}

// Queue kinds of activities that are not replies, such as Accept; those to many followers wait behind the others.
const (
	activityJob     = "activity"
	activityBulkJob = "activity.bulk"
)

// outbox keeps an activity in the durable queue until its receiver has it.
type outbox struct{ store *store.Store }

// SendLater stores the activity; it is sent after the commit, in order inside the partition.
func (o outbox) SendLater(ctx context.Context, partition, payload string) error {
	job := laterJob(activitypub.Later{Partition: partition, Payload: payload})
	return o.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error { return tx.Enqueue(ctx, job) })
}

func laterJob(later activitypub.Later) queue.NewJob {
	kind := activityJob
	if later.Bulk {
		kind = activityBulkJob
	}
	return queue.NewJob{ID: uuid.Must(uuid.NewV7()).String(), Kind: kind, Partition: kind + " " + later.Partition, Payload: later.Payload}
}

// sendActivity is the job: one attempt under the rules of deliveries. What it asks for besides is stored in the
// transaction that ends it.
func (e *engine) sendActivity(adapter *activitypub.Adapter) queue.Handler {
	return func(ctx context.Context, job queue.Job) error {
		attempt := func(ctx context.Context) error {
			more, err := adapter.Perform(ctx, job.Payload, job.Attempt)
			if err != nil || len(more) == 0 {
				return err
			}
			return e.storeLater(ctx, job, more)
		}

		if to := activitypub.LaterTo(job.Payload); to.Key != "" {
			return e.delivery.Guard(ctx, job, activitypub.ChannelName, to, attempt)
		}

		err := attempt(ctx)
		if f := fault.Of(err); err != nil && ctx.Err() == nil && f.Permanent {
			return queue.GiveUp(f.Public, err)
		}

		return err
	}
}

func (e *engine) storeLater(ctx context.Context, job queue.Job, more []activitypub.Later) error {
	err := e.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		for _, later := range more {
			if err := tx.Enqueue(ctx, laterJob(later)); err != nil {
				return err
			}
		}
		return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
	})
	if err != nil {
		return err
	}
	return queue.ErrSettled
}

// operatorFields are the lines on every profile that say who operates the server.
func operatorFields(c *Config) []activitypub.Field {
	var fields []activitypub.Field
	for _, field := range []activitypub.Field{
		{Name: "Operator", Value: c.Operator.Name}, {Name: "Contact", Value: c.Operator.Contact}, {Name: "Account", Value: c.Operator.Account},
		{Name: "Privacy", Value: c.Operator.Privacy}, {Name: "Source", Value: c.Operator.Source},
	} {
		if field.Value != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

func (m *modules) openA2A() (module exchange.Module, err error) {
	m.a2a, err = a2a.New(a2a.Options{
		Verifier: currentTokens{m.resources}, Peers: m.takesPeer, Issuers: m.issuerCards, CardKeys: m.keyring.SigningAll,
		Domain: m.config.Domain, PublicURL: m.config.PublicURL, SupportedInbound: m.inbound(),
		Receiver: m.pipeline, Directory: m.registry, Turns: m.store, Runs: m.pipeline, Tokens: m.tokens,
		Claims: m.store.State(), Conversations: m.store, Blobs: m.blobs, Logger: m.logger, Validator: currentValidator{m.resources}, Present: m.demands.Present,
		FileURL: m.activitypub.MediaURL, Links: m.activitypub.Links,
		Push: m.newPush(), WebhookConcurrency: m.config.Queue.DeliveryConcurrency, CallerConcurrency: m.config.A2A.CallerConcurrency,
		MaxRequestBytes: min(int64(m.config.A2A.MaxRequestBytes), m.bodies.Limit()), Bodies: m.bodies, Origins: m.config.Chat.AllowedOrigins,
		GRPCPace: httpserver.NewClientLimiter(m.floodRates(), m.networks()), GRPCClient: m.networks().Client, GRPCAddress: m.grpcAddress, DefaultAgent: func() string { return m.now().config.A2A.DefaultAgent },
		Operator: m.config.Operator.Name, Contact: m.config.Operator.Contact, OperatorURL: m.config.Operator.Privacy,
	})
	if err != nil {
		return module, err
	}

	module = m.a2a.Module()
	if m.config.A2A.GRPCListen == "" {
		return module, nil
	}

	security, err := m.certificate(m.config.PublicHost(), false)
	if err != nil {
		return module, err
	}

	m.grpc = m.a2a.NewGRPC(m.config.A2A.GRPCListen, security, m.config.ShutdownGrace)
	module.Listeners = append(module.Listeners, m.grpc)
	return module, nil
}

// grpcAddress is where peers reach gRPC: as the operator wrote it, or the public host with the listener's port.
func (m *modules) grpcAddress() string {
	switch {
	case m.config.A2A.GRPCAddress != "":
		return m.config.A2A.GRPCAddress
	case m.grpc == nil || m.grpc.Addr() == nil:
		return ""
	}

	public, err := url.Parse(m.config.PublicURL)
	if err != nil {
		return ""
	}

	_, port, _ := net.SplitHostPort(m.grpc.Addr().String())
	return net.JoinHostPort(public.Hostname(), port)
}

// newPush returns what webhooks of A2A tasks need.
func (m *modules) newPush() a2a.Push {
	hosts := newWebhookHosts(m.config.A2A.WebhookHosts, m.config.Federation.AllowPrivate)
	return a2a.Push{Watches: m.store, Sealer: m.sealer, Web: m.client.Allowing(hosts.pairs...), Named: hosts.named}
}

// webhookHosts are the hosts of a2a.webhook_hosts.
type webhookHosts struct {
	pairs   []string // host:port; an entry without a port has the two of the web
	bare    []string // entries without a port
	private bool     // federation.allow_private: webhooks at any port may be called
}

func newWebhookHosts(listed []string, private bool) *webhookHosts {
	hosts := &webhookHosts{private: private}
	for _, host := range listed {
		host = strings.ToLower(host)
		if _, _, err := net.SplitHostPort(host); err == nil {
			hosts.pairs = append(hosts.pairs, host)
			continue
		}
		host = strings.Trim(host, "[]")
		hosts.bare = append(hosts.bare, host)
		hosts.pairs = append(hosts.pairs, net.JoinHostPort(host, "443"), net.JoinHostPort(host, "80"))
	}
	return hosts
}

// named reports whether a webhook gets its credentials without confirming: the operator listed its host, or, where private addresses are
// allowed, it is on this machine (decision 0194).
func (h *webhookHosts) named(u *url.URL) bool {
	if slices.Contains(h.pairs, webhookPair(u)) {
		return true
	}
	host := strings.ToLower(u.Hostname())
	return h.private && (slices.Contains(h.bare, host) || isThisMachine(host))
}

// isThisMachine reports whether a host is localhost or a loopback address. A name that leads to one is not: the owner of the name
// decides where it leads.
func isThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// webhookPair is the host:port of an address.
func webhookPair(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (m *modules) openChat() (module exchange.Module, err error) {
	spool, err := storage.Spool(m.config.DataDir)
	if err != nil {
		return module, err
	}
	m.chat, err = chat.New(chat.Options{
		Domain: m.config.Domain, PublicURL: m.config.PublicURL, Issued: issuedTokens{m.a2a}, Receiver: chatReceiver{m.pipeline, m.store, m.logger}, Directory: m.registry, Turns: m.store, Runs: m.pipeline,
		Tokens: m.tokens, Guests: m.takesGuests, Secret: m.tokenKey, Opening: m.opening, Present: m.demands.Present, FileURL: m.activitypub.MediaURL,
		Formats:  m.formats,
		ToolKind: func(agent, name string) string { return m.now().toolKind(agent, name) }, Tools: chatTools{m.store, m.pipeline, m.blobs}, Memory: m.store, Conversations: m.store,
		Limits: m.limits(), Origins: m.config.Chat.AllowedOrigins, WaitLimit: m.config.Chat.Wait, Logger: m.logger,
		Spool: spool, MaxRequestBytes: int64(m.config.HTTP.MaxBodyBytes), GuestBytes: func() int64 { return m.now().quotas.GuestBytes },
	})
	if err != nil {
		return module, err
	}
	return m.chat.Module(), nil
}

// formats reports whether an agent can hold its answers to a kind of form; see chat.Options.Formats.
func (m *modules) formats(agent, kind string) bool {
	entry, known := m.registry.Lookup(agent)
	formatting, is := entry.Agent.(agents.Formatting)
	return known && is && formatting.Formats(kind)
}

// issuedTokens lets the holders of signed tokens into the chat as A2A does.
type issuedTokens struct{ *a2a.Adapter }

// Credential checks the token of a request to an agent.
func (i issuedTokens) Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (chat.Credential, error) {
	found, err := i.Adapter.Credential(r, agent, address, audiences...)
	return chat.Credential{Sender: found.Sender, May: found.May}, err
}

// chatReceiver accepts what comes by chat and keeps its sessions, so that holders of a token find them again at
// /v1/sessions. Guests have none: their session is a secret that is not listed.
type chatReceiver struct {
	receiver exchange.Receiver
	sessions *store.Store
	logger   *slog.Logger
}

// Receive accepts the message. A session that could not be written costs its place in the list, not the message.
func (c chatReceiver) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	receipt, err := c.receiver.Receive(ctx, in)
	if err != nil || !receipt.New {
		return receipt, err
	}
	if err := c.keep(ctx, in); err != nil {
		c.logger.WarnContext(ctx, "the session of a chat is not listed", "turn", receipt.TurnID, "error", err)
	}
	return receipt, nil
}

func (c chatReceiver) keep(ctx context.Context, in exchange.Inbound) error {
	var route struct {
		Session string            `json:"session"`
		History []json.RawMessage `json:"history"`
	}

	recipient, err := identity.ParseAddress(in.Message.Recipient)
	if err != nil || json.Unmarshal(in.Route, &route) != nil || route.Session == "" || len(in.Message.Sender.Identities) == 0 {
		return nil //nolint:nilerr // it is no chat's, or a guest's
	}
	if len(route.History) > 0 { // the client sends its whole conversation each time and never comes back to a session
		return nil
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	session := exchange.Session{
		ID: route.Session, Owner: in.Message.Sender.Principal(), Agent: recipient.Local, ThreadID: in.Message.ThreadID,
		Title: firstLine(markup.PlainText(in.Message.Parts)), CreatedAt: now, UpdatedAt: now,
	}

	_, created, err := c.sessions.CreateSession(ctx, session)
	if err != nil || created {
		return err
	}

	return c.sessions.TouchSession(ctx, session.Owner, session.ID, now)
}

// firstLine is the title of a session without a given name.
func firstLine(text string) string {
	const longest = 120
	line := []rune(text)
	for i, char := range line {
		if char == '\n' || i == longest {
			return string(line[:i])
		}
	}
	return text
}

// clientToolKinds says who executes the client tools of the configured agents; see chat.Options.ToolKind.
func clientToolKinds(configured []config.Agent) func(agent, name string) string {
	kinds := map[string]string{}
	for i := range configured {
		agent := strings.ToLower(configured[i].Name) + "\x00"
		for _, one := range configured[i].ClientTools {
			kind := chat.ToolOfProgram
			if one.Asker {
				kind = chat.ToolOfAsker
			}
			kinds[agent+one.FullName()] = kind
			if kinds[agent] != chat.ToolOfAsker {
				kinds[agent] = kind
			}
		}
	}

	return func(agent, name string) string { return kinds[strings.ToLower(agent)+"\x00"+name] }
}

// chatTools are the requests of tools whose results come by chat.
type chatTools struct {
	rows     *store.Store
	pipeline *pipeline.Service
	blobs    exchange.Blobs
}

// ToolRequests implements chat.ToolRequests.
func (c chatTools) ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	return c.rows.ToolRequests(ctx, filter)
}

// Submit hands in the result of a request, after its files. Files to which no result refers then, because there is one already, go with the
// next sweep.
func (c chatTools) Submit(ctx context.Context, agent, by string, result map[string]any, files exchange.Contents) (*request.Envelope, error) {
	for _, content := range files {
		if _, _, err := c.blobs.Put(ctx, bytes.NewReader(content)); err != nil {
			return nil, err
		}
	}
	return c.pipeline.ToolRequests(agent, by).Submit(ctx, result, nil, nil)
}

// openBridge makes the edge for bridges and connectors.
func (m *modules) openBridge() (module exchange.Module, err error) {
	m.bridge, err = bridge.New(bridge.Options{
		Domain: m.config.Domain, Receiver: m.pipeline, Directory: m.registry, Turns: m.store, Runs: m.pipeline, Tokens: m.tokens,
		Queue: m.store.Bridge(nil), Sessions: m.store, Notes: m.store.RunNotes(), Sealer: m.sealer, Web: m.client,
		SessionOf: func(owner string) contract.Sessions { return m.store.SessionMap(owner) },
		Validator: currentValidator{m.resources}, Present: m.demands.Present, FileURL: m.activitypub.MediaURL, Connectors: func() []bridge.Connector { return m.now().connectors }, WaitLimit: m.config.Bridges.MaxWait, Logger: m.logger,
		Policy: exchange.Policy{Schedule: m.config.Bridges.Retry}, CallbackConcurrency: m.config.Queue.DeliveryConcurrency,
	})
	if err != nil {
		return module, err
	}

	return m.bridge.Module(), nil
}

// connectors makes what the configuration says about them. Their callbacks are addresses that the operator wrote.
func (r *resources) connectors(from *Config) ([]bridge.Connector, error) {
	list := make([]bridge.Connector, 0, len(from.Connectors))
	for _, entry := range from.Connectors {
		web, err := r.callbackClient(entry)
		if err != nil {
			return nil, err
		}

		var secrets []string
		for _, secret := range []config.Secret{entry.Secret, entry.PreviousSecret} {
			if secret != "" {
				secrets = append(secrets, secret.Reveal())
			}
		}

		list = append(list, bridge.Connector{
			Name: entry.Name, Secrets: secrets, Issuer: entry.Issuer, Method: entry.Method, Agents: entry.Agents,
			CallbackURL: entry.CallbackURL, Client: entry.Bridge, Web: web, RequireTimestamp: entry.RequireTimestamp,
		})
	}

	return list, nil
}

// callbackClient reaches the callback that the operator wrote, wherever it is.
func (r *resources) callbackClient(entry config.Connector) (*safehttp.Client, error) {
	if entry.CallbackURL == "" {
		return r.client, nil
	}
	_, client, err := r.trustingOperator(entry.CallbackURL)
	if err != nil {
		return nil, fmt.Errorf("connectors: callback_url of %s: %w", entry.Name, err)
	}
	return client, nil
}

// openTasks makes the edge for programs that run tasks.
func (m *modules) openTasks() (module exchange.Module, err error) {
	adapter, err := tasks.New(tasks.Options{
		Domain: m.config.Domain, Targets: func() *tasks.Targets { return m.now().targets }, Receiver: m.pipeline, Directory: m.registry, Turns: m.store, Runs: m.pipeline,
		Rows: m.store, Tokens: m.tokens, Blobs: m.blobs, Present: m.demands.Present, FileURL: m.activitypub.MediaURL,
		WaitLimit: m.config.Bridges.MaxWait,
	})
	if err != nil {
		return module, err
	}
	return adapter.Module(), nil
}

func targets(config *Config) (*tasks.Targets, error) {
	list := make([]tasks.Target, 0, len(config.Targets))
	for _, entry := range config.Targets {
		metadata := map[string]string{}
		for _, line := range entry.Metadata {
			name, text, _ := strings.Cut(line, "=")
			metadata[strings.TrimSpace(name)] = text
		}

		list = append(list, tasks.Target{
			ID: entry.ID, Label: entry.Label, Description: entry.Description, Kind: entry.Kind, Agent: entry.Agent,
			Capabilities: entry.Capabilities, ResourceClasses: entry.ResourceClasses, Metadata: metadata,
		})
	}
	return tasks.NewTargets(list)
}

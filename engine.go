package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/agents/files"
	"inbox/engine/delivery"
	"inbox/engine/mailbox"
	"inbox/engine/moderation"
	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/blob"
	"inbox/internal/disk"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/internal/redact"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/operator"
)

// engine accepts messages, runs turns and delivers answers: the services of engine/ with their jobs in one queue.
type engine struct {
	*agentSet

	channels     *exchange.Channels
	availability availability
	meter        *moderation.Meter
	delivery     *delivery.Service
	pipeline     *pipeline.Service
	files        *files.Service
	guestNets    *moderation.Networks
	mailbox      *mailbox.Service
	queue        *queue.Queue
	notices      *notice.Service
	health       databaseHealth
	keys         func() *redact.Redactor                        // hides addresses of this server that are keys
	observe      func(ctx context.Context) []notice.Observation // what this node sees of itself, once it is whole

	reloading sync.Mutex
	top       *engine   // of the domain whose listeners this one uses; nil = it has its own
	further   []*engine // of the domains that use its listeners
}

func newEngine(ctx context.Context, below *agentSet) (*engine, error) {
	e := &engine{agentSet: below, channels: exchange.NewChannels()}
	e.keys = sync.OnceValue(e.newKeys)
	base, err := url.Parse(e.config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}

	e.delivery = delivery.New(delivery.Options{
		Store: e.store.Deliverer(), Channels: e.channels, Refused: e.lists.refusedDelivery, Listens: e.listens, PerKey: e.config.Queue.DeliveryConcurrency,
		Active: e.config.Queue.DeliveryConcurrency, Logger: e.logger, Tracer: e.tracer,
	})

	e.availability = availability{
		disk: e.disk, guests: newGuestDiskGuard(e.config), lists: e.lists,
		backlog: pipeline.NewBacklog(e.store, e.config.Limits.Backlog, e.names, e.logger),
		clock:   e.store.ClockWrong,
	}

	e.meter, e.guestNets = e.newMeter(), moderation.NewNetworks(e.networkKey)
	e.mailbox = e.newMailbox()
	e.files = e.newFiles(base)
	e.checkFiles = e.files.Check
	e.pipeline = pipeline.New(pipeline.Options{
		Closed: e.availability,
		Limits: e.limits(),
		Store:  e.store.Pipeline(), Agents: e.registry, Channels: e.channels, Blobs: e.blobs, Logger: e.logger, Tracer: e.tracer, Deliveries: e.delivery,
		Believed: func(side exchange.LinkSide) bool { return operator.Believed(e.now().config)(side) },
		Demands:  e.demands, Caller: currentCaller{e.resources}, Moderator: e.lists, Current: func() (*pipeline.Limiters, *pipeline.Quotas) { now := e.now(); return &now.limiters, &now.quotas }, KnownAgent: e.ofPeer, BaseURL: base,
		Files:     func(turn exchange.TurnRecord, expires time.Time) pipeline.Files { return e.files.Of(turn, expires) },
		Keys:      e.keys,
		Documents: e.store.State(), Approvers: openers{e.channels}, OperatorHears: e.operatorHears,
		Requested: e.clientTools.Requested, Reserve: func(job queue.NewJob) *queue.Reservation { return e.queue.Reserve(job) },
	})

	e.clientTools.Bind(e.pipeline)
	e.demands.Bind(e.pipeline)

	e.queue = queue.New(e.store.Queue(), queue.Options{Lease: e.config.Queue.Lease, Grace: e.config.ShutdownGrace, Logger: e.logger})
	e.handleTurns()
	e.handleNotices()
	e.handleEvents()
	return e, e.begin(ctx)
}

// newFiles opens the bytes of messages to the agents that get them.
func (e *engine) newFiles(base *url.URL) *files.Service {
	return files.New(files.Options{
		Base: base, Blobs: e.blobs, Tokens: e.tokens, Turn: e.store.Turn, Seal: e.sealer.SealShort, Open: e.sealer.Open,
		Holds:   func(content io.Reader) (bool, error) { return e.keys().HoldsIn(content) },
		Uploads: e.store, MaxUpload: blob.DefaultMaxBytes, MaxUnused: int64(e.config.Limits.UploadBytes),
		Told: func(ctx context.Context, turn exchange.TurnRecord) (normalized.Message, error) {
			return e.pipeline.Told(ctx, turn)
		},
		Original: func(ctx context.Context, digest string) (mediaType string, body []byte, err error) {
			original, err := e.store.Original(ctx, digest)
			return original.MediaType, original.Body, err
		},
	})
}

// approvalConcurrency is how many approvers are looked up at once.
const approvalConcurrency = 4

// handleTurns lets the queue run turns and what they need besides.
func (e *engine) handleTurns() {
	turns := e.config.Queue.TurnConcurrency
	e.queue.Handle(pipeline.JobKind, queue.KindOptions{Concurrency: turns, Limit: e.pipeline.Limit}, e.pipeline.Run)
	// A call mostly waits for the other agent, so many of them cost little.
	e.queue.Handle(pipeline.DispatchKind, queue.KindOptions{Concurrency: 4 * turns}, e.pipeline.RunDispatch)
	// How often approvers and askers are told is the pipeline's to decide.
	e.queue.Handle(pipeline.ApprovalKind, queue.KindOptions{Concurrency: approvalConcurrency, Timeout: time.Minute}, e.pipeline.RunApproval)
	e.queue.Handle(pipeline.AckKind, queue.KindOptions{Concurrency: approvalConcurrency}, e.pipeline.RunAck)
}

// waitingWorkers is how many deliveries may wait for peers for each one that works.
const waitingWorkers = 4

// handleDeliveries assigns workers to deliveries. Many of them wait for slow peers, which costs nothing but a
// connection, so there are more workers than attempts that may work at once.
func (e *engine) handleDeliveries() {
	e.pipeline.CountFromZero()
	e.delivery.CountFromZero()
	options := queue.KindOptions{
		Concurrency: waitingWorkers * e.config.Queue.DeliveryConcurrency, PerMember: e.delivery.MostPerKey(),
	}
	e.queue.Handle(delivery.JobKind, options, e.delivery.Run)
	e.queue.Handle(delivery.BulkKind, options, e.delivery.Run)
	e.queue.Handle(delivery.SpreadKind, queue.KindOptions{Concurrency: 2}, e.delivery.Spread)
}

// hostAlive is told of servers that sent something with a good signature.
func (e *engine) hostAlive(ctx context.Context, host string) {
	e.delivery.Alive(ctx, activitypub.ChannelName, host)
}

// newMeter counts what senders, hosts and agents use up.
func (e *engine) newMeter() *moderation.Meter {
	return moderation.NewMeter(moderation.MeterOptions{
		Counters: e.store, Conversation: e.conversationLimits, Logger: e.logger,
		Current: func() *moderation.MeterOptions { return &e.now().bounds },
	})
}

// bounds are the rates and budgets of a configuration.
func bounds(config *Config) moderation.MeterOptions {
	l := config.Limits
	return moderation.MeterOptions{
		Sender: rates(l.Sender), Host: rates(l.Host), Agent: rates(l.Agent), Total: rates(l.Total), Thread: rates(l.Thread),
		Budgets: moderation.Budgets{
			SenderRuns: int64(l.SenderRunsPerDay), AgentRuns: int64(l.AgentRunsPerDay),
			SenderCost: millionths(l.SenderCostPerDay), AgentCost: millionths(l.AgentCostPerDay),
		},
		Kept:       l.KnownReserve,
		GuestBytes: moderation.GuestBytes{Network: int64(l.GuestBytesPerDay), All: int64(l.AllGuestBytesPerDay)},
	}
}

// limiters are the limits, budgets, stop words and loop guards of the settings.
func (e *engine) limiters(config *Config) pipeline.Limiters {
	l := config.Limits
	return pipeline.Limiters{
		Meter: e.meter, Networks: e.guestNets, Stop: words(l.StopWords, moderation.DefaultStopWords), Start: words(l.StartWords, moderation.DefaultStartWords),
		BotTurns: l.BotTurns, BotWindow: l.BotWindow, ThreadTurns: l.BotTurnsPerThread,
	}.WithDefaults()
}

// quotas bound what gets no answer by itself.
func quotas(config *Config) pipeline.Quotas {
	l := config.Limits
	return pipeline.Quotas{
		Sender: pipeline.Usage{Messages: int64(l.HeldPerSender), Bytes: int64(l.HeldBytesPerSender)},
		All:    pipeline.Usage{Messages: int64(l.HeldMessages), Bytes: int64(l.HeldBytes)},
		Kept:   int64(l.KnownReserve), HeldFor: l.HeldFor, SilentFor: l.SilentFor, GuestBytes: int64(l.GuestMaxBytes),
	}
}

// conversationLimits are those of a channel in which our answer wakes the other side. Who fetches the answer asks by itself.
func (e *engine) conversationLimits(channel string) exchange.ConversationLimits {
	module, _ := e.channels.Module(channel)
	return module.Conversation
}

// rates reads what the validation of the settings has let pass.
func rates(texts []string) []exchange.Rate {
	var list []exchange.Rate
	for _, text := range texts {
		if rate, err := moderation.ParseRate(text); err == nil {
			list = append(list, rate)
		}
	}
	return list
}

func millionths(amount string) int64 {
	value, err := strconv.ParseFloat(amount, 64)
	if err != nil {
		return 0
	}
	return max(1, int64(math.Round(value*1e6)))
}

func words(written, usual []string) moderation.Words {
	if len(written) == 0 {
		written = usual
	}
	return moderation.NewWords(written)
}

// runMeter writes what was counted. A database that is down must not end the server.
func (e *engine) runMeter(ctx context.Context) error {
	if err := e.meter.Run(ctx); err != nil {
		e.logger.WarnContext(ctx, "the last second of the limits was not written", "error", err)
	}
	return nil
}

func (r *resources) floodRates() []httpserver.Rate {
	var list []httpserver.Rate
	for _, rate := range rates(r.config.Limits.HTTP) {
		list = append(list, httpserver.Rate{Requests: rate.Amount, Window: rate.Window})
	}
	return list
}

// availability tells which agents take nothing just now, for the engine and for mail, which refuses before it reads a message.
type availability struct {
	disk    *disk.Guard
	guests  *disk.Guard // full earlier: what is left is for senders with proof
	lists   *senderLists
	backlog *pipeline.Backlog
	clock   func() time.Duration // how wrong this node's clock is; 0 = not too wrong to work
}

// Closed returns why an agent takes no message; an empty name stands for the operator's own mailbox.
func (a availability) Closed(agent string) exchange.Closure {
	switch {
	case a.clock() != 0:
		return exchange.ClosedClock
	case a.disk.Full():
		return exchange.ClosedDisk
	case agent == "":
		return ""
	case a.lists.Paused(agent):
		return exchange.ClosedPaused
	case a.backlog.Full(agent):
		return exchange.ClosedBacklog
	}
	return ""
}

// Admit notes the bytes of a message that is about to be stored in the database, which is on the same disk as a rule.
func (a availability) Admit(bytes int64) { a.disk.Admit(bytes) }

// ClosedToGuests returns why nothing of a sender without proof is taken.
func (a availability) ClosedToGuests() exchange.Closure {
	if a.guests.Full() {
		return exchange.ClosedDisk
	}
	return ""
}

// Paused reports whether what an agent has taken waits: the operator lets it rest, or all agents.
func (a availability) Paused(agent string) bool {
	_, all := a.lists.PausedAll()
	return all || a.lists.Paused(agent)
}

// tellPause writes to the log that all agents rest, or work again, when that is different from before.
func (e *engine) tellPause(ctx context.Context, before bool) (now bool) {
	entry, now := e.lists.PausedAll()
	switch {
	case now && !before:
		e.logger.WarnContext(ctx, "all agents are paused: messages are accepted, and their turns wait for: inbox resume --all", "since", entry.CreatedAt, "reason", entry.Reason)
	case before && !now:
		e.logger.InfoContext(ctx, "the agents work again")
	}
	return now
}

const eventConcurrency = 4

// handleEvents tells agents what became of their answers.
func (e *engine) handleEvents() {
	e.queue.Handle(exchange.AgentEventKind, queue.KindOptions{Concurrency: eventConcurrency}, func(ctx context.Context, job queue.Job) error {
		var event exchange.AgentEvent
		if err := json.Unmarshal([]byte(job.Payload), &event); err != nil {
			return queue.GiveUp("the event cannot be read", err)
		}
		entry, release, _ := e.registry.Acquire(event.Agent)
		defer release()
		listener, is := listenerOf(entry)
		if !is {
			return nil // it does not want to hear any more
		}
		to := exchange.Destination{Key: event.Agent, Address: event.TurnID}
		return e.delivery.Guard(ctx, job, exchange.AgentEventKind, to, func(ctx context.Context) error { return listener.Hear(ctx, event) })
	})
}

// newCaller calls agents of other servers. Hosts of configured peers may be private, because the operator wrote them.
func (e *engine) newCaller(config *Config) (*a2a.Caller, *safehttp.Client, error) {
	// Agents take their time, and calls must not take the connections of deliveries.
	client := safehttp.New(safehttp.Options{
		AllowPrivate: e.config.Federation.AllowPrivate, MetadataAddresses: e.config.Federation.MetadataAddresses, Resolver: e.resolver, UserAgent: userAgent(e.config),
		HeaderTimeout: callAnswer, Timeout: callAnswer, MaxPerHost: e.config.Queue.TurnConcurrency, MaxConcurrent: 4 * e.config.Queue.TurnConcurrency,
	})

	tokens := map[string]string{}
	for _, peer := range config.Peers {
		tokens[peer.Domain] = peer.Token.Reveal()
		address := peer.Domain
		if identity.HostOf(address) == address {
			address = net.JoinHostPort(address, "443")
		}
		client = client.Trusting(address)
	}

	caller, err := a2a.NewCaller(a2a.CallerOptions{
		Client: client, Signer: e.keyring, Domain: e.config.Domain, Blobs: e.blobs, AllowHTTP: e.config.Federation.AllowPrivate,
		Tokens: func(domain string) string { return tokens[domain] }, TimeLimit: callLimit, Assert: e.assert,
	})
	return caller, client, err
}

// callLimit bounds one call to another agent with all its polls, callAnswer one request of it: servers of agents hold
// a blocking request for up to a minute.
const (
	callLimit  = 2 * time.Minute
	callAnswer = 70 * time.Second
)

// runLists keeps the lists current. A sender who was blocked since then gets no answer to what was accepted before.
func (e *engine) runLists(ctx context.Context) error {
	paused := e.tellPause(ctx, false)
	return e.lists.Run(ctx, func(ctx context.Context) {
		if now := e.tellPause(ctx, paused); now != paused {
			paused = now
			e.queue.Wake(pipeline.JobKind)
		}
		e.pipeline.CancelRunning(ctx)
		if _, err := cancelBlocked(ctx, e.store, e.lists, e.pipeline); err != nil && ctx.Err() == nil {
			e.logger.WarnContext(ctx, "messages of blocked senders are cancelled only when their turn comes", "error", err)
		}
		if _, err := e.delivery.WithdrawRefused(ctx); err != nil && ctx.Err() == nil {
			e.logger.WarnContext(ctx, "deliveries to who is blocked are cancelled only when their time comes", "error", err)
		}
	})
}

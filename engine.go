package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"inbox/adapters/activitypub"
	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/disk"
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

// waitingWorkers is how many deliveries may wait for peers for each one that works.
const waitingWorkers = 4

// handleDeliveries returns the deliveries their workers. Many of them wait for slow peers, which costs nothing but a
// connection, so there are more workers than attempts that may work at once.
func (s *Server) handleDeliveries() {
	options := queue.KindOptions{
		Concurrency: waitingWorkers * s.config.Queue.DeliveryConcurrency, PerMember: s.delivery.MostPerKey(),
	}
	s.queue.Handle(delivery.JobKind, options, s.delivery.Run)
	s.queue.Handle(delivery.BulkKind, options, s.delivery.Run)
	s.queue.Handle(delivery.SpreadKind, queue.KindOptions{Concurrency: 2}, s.delivery.Spread)
}

// hostAlive is told of servers that sent something with a good signature.
func (s *Server) hostAlive(ctx context.Context, host string) {
	s.delivery.Alive(ctx, activitypub.ChannelName, host)
}

// fediverseProfile is what the configuration says about an agent's account.
func (s *Server) fediverseProfile(name string) activitypub.Profile {
	for _, agent := range s.config.Agents {
		if agent.Name == name {
			f := agent.Fediverse
			return activitypub.Profile{
				Icon: f.Icon, Image: f.Image, Hidden: !f.Discoverable, Indexable: f.Indexable, AlsoKnownAs: f.AlsoKnownAs,
				QuotesByFans: f.Quotes == "followers",
			}
		}
	}
	return activitypub.Profile{}
}

// limiters are the limits, budgets, stop words and loop guards of the settings.
func (s *Server) limiters() pipeline.Limiters {
	l := s.config.Limits
	s.meter = moderation.NewMeter(moderation.MeterOptions{
		Counters: s.store, Sender: rates(l.Sender), Host: rates(l.Host), Agent: rates(l.Agent), Total: rates(l.Total), Thread: rates(l.Thread),
		Budgets: moderation.Budgets{
			SenderRuns: int64(l.SenderRunsPerDay), AgentRuns: int64(l.AgentRunsPerDay),
			SenderCost: millionths(l.SenderCostPerDay), AgentCost: millionths(l.AgentCostPerDay),
		},
		Conversation: s.conversationLimits,
		Kept:         l.KnownReserve,
		GuestBytes:   moderation.GuestBytes{Network: int64(l.GuestBytesPerDay), All: int64(l.AllGuestBytesPerDay)},
		Logger:       s.logger,
	})
	return pipeline.Limiters{
		Meter: s.meter, Networks: moderation.NewNetworks(s.networkKey), Stop: words(l.StopWords, moderation.DefaultStopWords), Start: words(l.StartWords, moderation.DefaultStartWords),
		BotTurns: l.BotTurns, BotWindow: l.BotWindow, ThreadTurns: l.BotTurnsPerThread,
	}
}

// quotas bound what gets no answer by itself.
func (s *Server) quotas() pipeline.Quotas {
	l := s.config.Limits
	return pipeline.Quotas{
		Sender: pipeline.Usage{Messages: int64(l.HeldPerSender), Bytes: int64(l.HeldBytesPerSender)},
		All:    pipeline.Usage{Messages: int64(l.HeldMessages), Bytes: int64(l.HeldBytes)},
		Kept:   int64(l.KnownReserve), HeldFor: l.HeldFor, SilentFor: l.SilentFor, GuestBytes: int64(l.GuestMaxBytes),
	}
}

// conversationLimits are those of a channel in which our answer wakes the other side. Who fetches the answer asks by itself.
func (s *Server) conversationLimits(channel string) exchange.ConversationLimits {
	module, _ := s.channels.Module(channel)
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
func (s *Server) runMeter(ctx context.Context) error {
	if err := s.meter.Run(ctx); err != nil {
		s.logger.WarnContext(ctx, "the last second of the limits was not written", "error", err)
	}
	return nil
}

func (s *Server) floodRates() []httpserver.Rate {
	var list []httpserver.Rate
	for _, rate := range rates(s.config.Limits.HTTP) {
		list = append(list, httpserver.Rate{Requests: rate.Amount, Window: rate.Window})
	}
	return list
}

// closed says which agents take nothing just now, for the engine and for mail, which refuses before it reads a message.
type closed struct {
	disk    *disk.Guard
	guests  *disk.Guard // full earlier: what is left is for senders with proof
	lists   *moderation.Lists
	backlog *pipeline.Backlog
}

// Closed says why an agent takes no message; an empty name stands for the operator's own mailbox.
func (c closed) Closed(agent string) exchange.Closure {
	switch {
	case c.disk.Full():
		return exchange.ClosedDisk
	case agent == "":
		return ""
	case c.lists.Paused(agent):
		return exchange.ClosedPaused
	case c.backlog.Full(agent):
		return exchange.ClosedBacklog
	}
	return ""
}

// Admit notes the bytes of a message that is about to be stored in the database, which is on the same disk as a rule.
func (c closed) Admit(bytes int64) { c.disk.Admit(bytes) }

// ClosedToGuests says why nothing of a sender without proof is taken.
func (c closed) ClosedToGuests() exchange.Closure {
	if c.guests.Full() {
		return exchange.ClosedDisk
	}
	return ""
}

// Paused reports whether the operator lets an agent rest.
func (c closed) Paused(agent string) bool { return c.lists.Paused(agent) }

func (s *Server) newClosed() closed {
	names := func() (list []string) {
		for _, agent := range s.registry.Agents() {
			list = append(list, agent.Name)
		}
		return list
	}
	return closed{
		disk: s.closed.disk, guests: newGuestDiskGuard(s.config), lists: s.lists,
		backlog: pipeline.NewBacklog(s.store, s.config.Limits.Backlog, names, s.logger),
	}
}

func newDiskGuard(c *Config) *disk.Guard {
	return disk.NewGuard(disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.FreeDisk)})
}

// newGuestDiskGuard is that of senders without proof.
func newGuestDiskGuard(c *Config) *disk.Guard {
	options := disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.GuestFreeDisk), For: "senders without proof"}
	switch {
	case c.Limits.GuestFreeDisk == 0:
		return nil
	case c.Limits.GuestFreeDisk < 0:
		options.Keep, options.Times = int64(c.Limits.FreeDisk), 2
	}
	return disk.NewGuard(options)
}

// Files of erased messages go at the latest so long after they were last put.
const (
	blobIdle  = time.Hour
	blobSweep = 10 * time.Minute
)

// Files to which nothing refers, because their message was refused or a process died, go after a day. That is longer than
// anything takes from putting a file to committing what refers to it; the longest are runs of agents.
const (
	orphanIdle  = 24 * time.Hour
	orphanSweep = 6 * time.Hour
)

// The document that says when orphans were swept. Who writes it sweeps, whichever node that is; it ends when the next sweep
// is due.
const (
	sweptNamespace = "blobs"
	sweptKey       = "orphans swept"
)

// sweepBlobs deletes the files of erased messages and those to which nothing refers, now and then until ctx ends.
func (s *Server) sweepBlobs(ctx context.Context) error {
	ticker := time.NewTicker(blobSweep)
	defer ticker.Stop()
	for {
		deleted, err := s.store.SweepBlobs(ctx, s.blobs, blobIdle)
		s.logSweep(ctx, "erased messages", deleted, err)
		deleted, err = s.sweepOrphans(ctx, orphanIdle)
		s.logSweep(ctx, "what nothing refers to", deleted, err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Server) logSweep(ctx context.Context, of string, deleted int, err error) {
	if err != nil && ctx.Err() == nil {
		s.logger.WarnContext(ctx, "files are deleted later", "of", of, "error", err)
	}
	if deleted > 0 {
		s.logger.InfoContext(ctx, "files were deleted", "of", of, "files", deleted)
	}
}

// sweepOrphans sweeps when that is due and no other node does.
func (s *Server) sweepOrphans(ctx context.Context, idle time.Duration) (deleted int, err error) {
	now := time.Now()
	_, mine, err := s.store.State().PutIfAbsent(ctx, sweptNamespace, sweptKey, []byte(now.UTC().Format(time.RFC3339)), now.Add(orphanSweep))
	if err != nil || !mine {
		return 0, err
	}
	deleted, err = s.store.SweepOrphans(ctx, s.blobs, idle)
	if err != nil { // it is due again
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.store.State().Delete(again, sweptNamespace, sweptKey)
	}
	return deleted, err
}

// listener returns the agent that wants to hear what became of its answers.
func (s *Server) listener(name string) (agents.Listener, bool) {
	entry, known := s.registry.Lookup(name)
	if !known {
		return nil, false
	}
	listener, is := entry.Agent.(agents.Listener)
	if choosy, able := entry.Agent.(interface{ Hears() bool }); is && able {
		is = choosy.Hears()
	}
	return listener, is
}

func (s *Server) listens(name string) bool {
	_, is := s.listener(name)
	return is
}

const eventConcurrency = 4

// handleEvents tells agents what became of their answers.
func (s *Server) handleEvents() {
	s.queue.Handle(exchange.AgentEventKind, queue.KindOptions{Concurrency: eventConcurrency}, func(ctx context.Context, job queue.Job) error {
		var event exchange.AgentEvent
		if err := json.Unmarshal([]byte(job.Payload), &event); err != nil {
			return queue.GiveUp("the event cannot be read", err)
		}
		listener, is := s.listener(event.Agent)
		if !is {
			return nil // it does not want to hear any more
		}
		return s.delivery.Guard(ctx, job, exchange.AgentEventKind, event.Agent, func(ctx context.Context) error { return listener.Hear(ctx, event) })
	})
}

package inbox

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/acme"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/operator"
)

// Operator is what an operator may look at and do.
type Operator = operator.Operator

// MigrateDatabase brings the database of the configuration to the schema of this version, and returns the version of the schema. New does the same.
func MigrateDatabase(ctx context.Context, config *Config) (version int64, err error) {
	opened, err := storage.Open(ctx, storageOptions(config, slog.Default()), nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return opened.SchemaVersion(ctx)
}

// OpenOperator opens the database of the configuration, of a running or stopped server. It refuses the schema of an earlier version, on which a
// server of that version may be running; an empty database gets the schema of this version. Close it afterwards.
func OpenOperator(ctx context.Context, config *Config) (*Operator, error) {
	stored := storageOptions(config, slog.Default())
	stored.NoUpgrade = true
	opened, err := storage.Open(ctx, stored, nil)
	if err != nil {
		return nil, err
	}

	base, err := url.Parse(config.PublicURL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("public_url: %w", err), opened.Close())
	}

	// Rows are enough here: a server that runs notices by its queue what changed. No demand is decided by a page, so that of
	// demands needs no secret.
	options := operatorOptions(config)
	options.Store, options.Turns = opened, pipeline.New(pipeline.Options{Store: opened.Pipeline()})
	demands := demand.New(demand.Options{Store: opened, BaseURL: base})
	demands.Bind(options.Turns)
	options.Approvals, options.Demands = demands, demands
	options.Deliveries = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: revisers(config)})
	options.Notices = noticesOf(func() *Config { return config }, opened)

	options.Agents = func() (names []string) {
		for i := range config.Agents {
			names = append(names, config.Agents[i].Name)
		}
		return names
	}

	options.Files = func() (exchange.Files, error) { return openBlobs(config, nil) }
	options.Vault = func(ctx context.Context) (operator.Vault, error) {
		sealer, err := storage.OpenSealer(ctx, storageOptions(config, slog.Default()), opened)
		if err != nil {
			return nil, err
		}
		return sealer.Vault(), nil
	}
	options.Issued = func(ctx context.Context) ([]*x509.Certificate, error) {
		sealer, err := storage.OpenSealer(ctx, storageOptions(config, slog.Default()), opened)
		if err != nil {
			return nil, err
		}
		return acme.Issued(ctx, sealer.Vault(), slog.Default())
	}

	options.Withdraw = func(ctx context.Context) (int, error) {
		lists := newLists(config, opened)
		if _, err := lists.Read(ctx); err != nil {
			return 0, err
		}
		deliveries := delivery.New(delivery.Options{Store: opened.Deliverer(), Refused: lists.refusedDelivery})
		if _, err := deliveries.WithdrawRefused(ctx); err != nil {
			return 0, err
		}
		return cancelBlocked(ctx, opened, lists, options.Turns)
	}
	options.WouldWithdraw = func(ctx context.Context, entries ...exchange.ListEntry) (int, error) {
		return wouldCancel(ctx, config, opened, entries)
	}

	return operator.New(options), nil
}

// Operator returns what an operator may do on this server. It ends with the server: do not close it.
func (s *Server) Operator() *Operator {
	options := s.operatorOptions()
	options.Further = s.furtherDomains()
	return operator.New(options)
}

// furtherDomains are the further domains of this node, which those who operate the domain at the top reach.
func (w *web) furtherDomains() (list []operator.Domain) {
	for _, other := range w.further {
		list = append(list, operator.Domain{Name: other.config.Domain, With: func(ctx context.Context, work func(context.Context, *Operator) error) error {
			return work(ctx, other.Operator())
		}})
	}
	return list
}

func (m *modules) operator() *Operator { return operator.New(m.operatorOptions()) }

// operatorHere is an operator of the node that listens.
func (w *web) operatorHere() *Operator {
	options := w.operatorOptions()
	options.Further = w.furtherDomains()
	options.Listening = func() (web, mail string) {
		if w.email != nil && w.email.Addr() != nil {
			mail = w.email.Addr().String()
		}
		if web = w.front.Addr().String(); w.front.Addr().Network() == "unix" {
			web = "unix:" + web
		}
		return web, mail
	}
	return operator.New(options)
}

func (m *modules) operatorOptions() operator.Options {
	options := operatorOptions(m.config)
	options.Store, options.Turns, options.Deliveries = m.store, m.pipeline, m.delivery
	options.WouldWithdraw = func(ctx context.Context, entries ...exchange.ListEntry) (int, error) {
		return wouldCancel(ctx, m.config, m.store, entries)
	}
	options.Approvals, options.Demands = m.demands, m.demands
	options.Notices, options.Listed = m.notices, m.lists.Sender
	options.Agents, options.Node, options.Shown = m.names, node{m}, m.tokens
	options.Current = func() *Config { return m.now().config }
	options.Files = func() (exchange.Files, error) { return m.blobs, nil }
	options.Vault = func(context.Context) (operator.Vault, error) { return m.vault(), nil }
	options.Issued = func(ctx context.Context) ([]*x509.Certificate, error) { return acme.Issued(ctx, m.vault(), m.logger) }
	return options
}

// node is a running server as its operator asks it.
type node struct{ *modules }

// Reload implements operator.Node.
func (n node) Reload(ctx context.Context) (operator.Reloaded, error) {
	answer, err := n.reload(ctx)
	if err != nil {
		return answer, fault.Wrap(fault.Malformed, "nothing was changed: "+err.Error(), err)
	}
	return answer, nil
}

// Stop implements operator.Node.
func (n node) Stop(ctx context.Context) error {
	n.logger.InfoContext(ctx, "the operator lets this node end")
	n.stopAsked.ask()
	return nil
}

// RotateActorKey implements operator.Node.
func (n node) RotateActorKey(ctx context.Context, name string) (string, error) {
	if strings.EqualFold(name, n.config.Domain) {
		name = ""
	}
	return n.activitypub.RotateKey(ctx, name)
}

// MoveAgent implements operator.Node.
func (n node) MoveAgent(ctx context.Context, agent, target string) (string, error) {
	return n.activitypub.Move(ctx, agent, target)
}

// UnmoveAgent implements operator.Node.
func (n node) UnmoveAgent(ctx context.Context, agent string) error {
	return n.activitypub.Unmove(ctx, agent)
}

// operatorOptions are those that follow from the configuration.
func operatorOptions(config *Config) operator.Options {
	return operator.Options{
		Config: config, SecretKeyFile: storage.KeyFile(config.DataDir, config.SecretKeyFile), Later: laterJob, OwnHosts: ownHosts(config), Check: CheckConfig, UserAgent: userAgent(config),
		Policies: func(client *safehttp.Client) email.PolicyFetcher { return stsFetcher{client, config.Mail.MTASTSPort} },
	}
}

// revisers say which answers can be changed, for programs that have no adapters at hand.
func revisers(config *Config) *exchange.Channels {
	return exchange.NewChannels(exchange.Module{
		Name: activitypub.ChannelName, Reviser: activitypub.Revisions{PostLength: config.Federation.PostLength},
	})
}

// senderLists are the operator's lists of senders and hosts that are kept out or let in, as the parts of a node ask for them.
type senderLists struct{ *moderation.Lists }

func newLists(c *Config, opened *store.Store) *senderLists { return listsOf(c, opened) }

func listsOf(c *Config, source moderation.Source) *senderLists {
	return &senderLists{moderation.New(moderation.Options{
		Source: source, Domain: c.Domain, Hosts: ownHosts(c), OnlyAllowed: c.Federation.Mode == activitypub.ModeAllowlist,
	})}
}

// proposedEntries are the stored lists with entries that are not stored. It is for one reading.
type proposedEntries struct {
	*store.Store

	entries []exchange.ListEntry
}

// ListChanges implements moderation.Source.
func (p *proposedEntries) ListChanges(ctx context.Context, version int64, id string, limit int) ([]exchange.ListChange, error) {
	changes, err := p.Store.ListChanges(ctx, version, id, limit)
	if err != nil || len(changes) == limit {
		return changes, err
	}
	if len(changes) > 0 {
		version = changes[len(changes)-1].Version
	}
	for _, entry := range p.entries {
		changes = append(changes, exchange.ListChange{Entry: entry, Version: version + 1})
	}
	p.entries = nil
	return changes, nil
}

// ownHosts are the names of this server beside its domain.
func ownHosts(c *Config) map[string]bool {
	hosts := map[string]bool{}
	names := []string{c.Domain, c.SMTP.Hostname}
	if u, err := url.Parse(c.PublicURL); err == nil {
		names = append(names, u.Host)
	}

	for _, name := range names {
		if host, err := identity.ParseDomain(name); err == nil {
			hosts[host], hosts[identity.HostOf(host)] = true, true
		}
	}
	return hosts
}

// blockedHost reports whether nothing is fetched from a host, whatever part of the node asks for it. The allow list does not count
// here: the operator's own services are reached by the same client.
func (l *senderLists) blockedHost(host string) bool {
	verdict := l.Host(host)
	return verdict.Refused() && verdict.Code != moderation.CodeNotListed
}

// unlisted reports whether other servers of the fediverse may not be contacted at a host.
func (l *senderLists) unlisted(host string) bool          { return l.Host(host).Refused() }
func (l *senderLists) hostAllowed(host string) bool       { return !l.Host(host).Refused() }
func (l *senderLists) actorAllowed(iri string) bool       { return !l.Actor(iri).Refused() }
func (l *senderLists) addressRefused(address string) bool { return l.Address(address).Refused() }

// stopped reports whether a sender told an agent to be quiet.
func (l *senderLists) stopped(agent, principal string) bool {
	_, is := l.Stopped(agent, principal)
	return is
}

// refusedDelivery returns why a reply must not leave any more; empty when it may.
func (l *senderLists) refusedDelivery(record delivery.Record, reply exchange.Reply) string {
	if verdict := l.Sender(reply.Message.Sender); verdict.Refused() && !l.ownMessage(reply) {
		return verdict.Reason
	}
	if verdict := l.Host(record.Key); verdict.Refused() && verdict.Code == moderation.CodeBlock+exchange.TargetHost {
		return verdict.Reason // the allow list is the adapter's to ask: not every way has hosts
	}

	for address := range strings.SplitSeq(record.Address, ",") {
		address = strings.TrimSpace(address)
		if strings.Contains(address, "://") || reply.Message.Sender.Proves(address) {
			continue
		}
		if verdict := l.Address(address); verdict.Refused() {
			return verdict.Reason
		}
	}

	return ""
}

// ownMessage reports whether the question is one of our own: a conversation that an agent began.
func (l *senderLists) ownMessage(reply exchange.Reply) bool {
	speaker := reply.Message.Sender.Speaker()
	return speaker != nil && speaker.Local()
}

// listedCaller keeps our agents from calling agents of hosts that are kept out.
type listedCaller struct {
	pipeline.Caller
	lists *senderLists
}

// Call refuses what the lists forbid before anything is looked up.
func (c listedCaller) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	if verdict := c.lists.Address(d.To); verdict.Refused() {
		return normalized.Response{}, fault.GiveUp("the operator of this server does not allow calls to "+d.To, nil)
	}
	return c.Caller.Call(ctx, d)
}

const cancelPage = 500

// cancelBlocked cancels what was accepted from senders who are blocked now and is not answered yet, and drops what is held of them.
func cancelBlocked(ctx context.Context, from *store.Store, lists *senderLists, turns *pipeline.Service) (cancelled int, err error) {
	err = eachRefused(ctx, from, lists, func(turn exchange.TurnRecord, verdict moderation.Verdict) error {
		err := cancelRefused(ctx, turns, turn, verdict.Reason)
		switch {
		case err == nil:
			cancelled++
		case !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound):
			return err
		}
		return nil
	})
	return cancelled, err
}

// cancelRefused ends a message for good, or drops it if it is held: until its content is erased the operator can put it back on hold.
func cancelRefused(ctx context.Context, turns *pipeline.Service, turn exchange.TurnRecord, reason string) error {
	if turn.State == exchange.StateHeld {
		return turns.Drop(ctx, turn.ID, reason)
	}
	_, err := turns.Cancel(ctx, turn.ID, reason)
	return err
}

// wouldCancel counts the messages that cancelBlocked would cancel if these entries were on their lists.
func wouldCancel(ctx context.Context, config *Config, from *store.Store, entries []exchange.ListEntry) (count int, err error) {
	lists := listsOf(config, &proposedEntries{Store: from, entries: entries})
	if _, err := lists.Read(ctx); err != nil {
		return 0, err
	}
	err = eachRefused(ctx, from, lists, func(exchange.TurnRecord, moderation.Verdict) error { count++; return nil })
	return count, err
}

// eachRefused calls do for each message that is not answered yet and whose sender the lists refuse.
func eachRefused(ctx context.Context, from *store.Store, lists *senderLists, do func(exchange.TurnRecord, moderation.Verdict) error) error {
	filter := exchange.TurnFilter{ByArrival: true, Limit: cancelPage + 1, States: []string{
		exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld,
	}}
	for {
		page, err := from.Turns(ctx, filter)
		if err != nil {
			return err
		}

		page, filter.Before = exchange.NextPage(page, cancelPage, exchange.TurnCursor)
		for _, turn := range page {
			verdict := lists.Sender(turn.Message.Sender)
			if !verdict.Refused() {
				continue
			}
			if err := do(turn, verdict); err != nil {
				return err
			}
		}

		if filter.Before == "" {
			return nil
		}
	}
}

// reportRecords writes what the adapter records, and tells of reports in the log. They are counted for the operator's digest: anyone can
// send them.
type reportRecords struct{ *resources }

// Audit stores the record.
func (r reportRecords) Audit(ctx context.Context, record exchange.AuditRecord) error {
	if strings.HasPrefix(record.Code, "report:") {
		r.logger.WarnContext(ctx, "an agent was reported; see: inbox reports list", "agent", record.Agent, "turn", record.TurnID, "by", record.Principal, "comment", record.Detail)
	}
	return r.store.Audit(ctx, record)
}

// IssuedCertificates returns the certificates that the server of a configuration has from an authority.
func IssuedCertificates(ctx context.Context, config *Config) ([]*x509.Certificate, error) {
	stored := storageOptions(config, slog.Default())
	stored.NoUpgrade = true
	opened, err := storage.Open(ctx, stored, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	sealer, err := storage.OpenSealer(ctx, stored, opened)
	if err != nil {
		return nil, err
	}
	return acme.Issued(ctx, sealer.Vault(), slog.Default())
}

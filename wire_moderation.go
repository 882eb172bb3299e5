package inbox

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/activitypub"
	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// openLists reads the operator's lists. A server without them must not start: it would let in whom they keep out.
func (s *Server) openLists(ctx context.Context) error {
	s.lists = newLists(s.config, s.store)
	s.client = s.client.Refusing(s.blockedHost)
	_, err := s.lists.Read(ctx)
	return err
}

func newLists(c *Config, opened *store.Store) *moderation.Lists {
	return moderation.New(moderation.Options{
		Source: opened, Domain: c.Domain, Hosts: ownHosts(c), OnlyAllowed: c.Federation.Mode == activitypub.ModeAllowlist,
	})
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

// namesLocal reports whether a rule of an agent, its approvers or the allow list may be about the whole address of a sender
// with this local part.
func (s *Server) namesLocal(agent, local string) bool {
	entry, known := s.registry.Lookup(agent)
	if !known {
		return false
	}

	named := func(rule agents.ReplyRule) bool {
		return identity.AccessPolicy{Rules: []identity.Rule{rule.Rule}}.NamesLocal(local)
	}
	approves := func(address string) bool {
		parsed, err := identity.ParseAddress(address)
		return err == nil && strings.EqualFold(parsed.Local, local)
	}
	return entry.Settings.Access.NamesLocal(local) || slices.ContainsFunc(entry.Settings.ReplyRules, named) ||
		slices.ContainsFunc(entry.Settings.Approvers, approves) || s.lists.NamesLocal(local)
}

// runLists keeps the lists current. Who was blocked since then gets no answer to what was accepted before.
func (s *Server) runLists(ctx context.Context) error {
	return s.lists.Run(ctx, func(ctx context.Context) {
		s.pipeline.CancelRunning(ctx)
		if _, err := cancelBlocked(ctx, s.store, s.lists, s.pipeline); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "messages of blocked senders are cancelled only when their turn comes", "error", err)
		}
		if _, err := s.delivery.WithdrawRefused(ctx); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "deliveries to who is blocked are cancelled only when their time comes", "error", err)
		}
	})
}

// blockedHost reports whether nothing is fetched from a host, whoever asks for it. The allow list is not asked here: the
// operator's own services are reached by the same client.
func (s *Server) blockedHost(host string) bool {
	verdict := s.lists.Host(host)
	return verdict.Refused() && verdict.Code != moderation.CodeNotListed
}

// unlisted reports whether other servers of the fediverse may not be contacted at a host.
func (s *Server) unlisted(host string) bool    { return s.lists.Host(host).Refused() }
func (s *Server) hostAllowed(host string) bool { return !s.lists.Host(host).Refused() }
func (s *Server) actorAllowed(iri string) bool { return !s.lists.Actor(iri).Refused() }
func (s *Server) stopped(agent, principal string) bool {
	_, is := s.lists.Stopped(agent, principal)
	return is
}
func (s *Server) refusesAddress(address string) bool { return s.lists.Address(address).Refused() }

// refusedDelivery says why a reply must not leave any more.
func (s *Server) refusedDelivery(record delivery.Record, reply exchange.Reply) string {
	return refusedDelivery(s.lists, s.config.Domain, record, reply)
}

func refusedDelivery(lists *moderation.Lists, domain string, record delivery.Record, reply exchange.Reply) string {
	if verdict := lists.Sender(reply.Message.Sender); verdict.Refused() && !ownMessage(reply, domain) {
		return verdict.Reason
	}
	if verdict := lists.Host(record.Key); verdict.Refused() && verdict.Code == moderation.CodeBlock+exchange.TargetHost {
		return verdict.Reason // the allow list is the adapter's to ask: not every way has hosts
	}
	for address := range strings.SplitSeq(record.Address, ",") {
		address = strings.TrimSpace(address)
		if strings.Contains(address, "://") || identity.SameAddress(address, reply.Message.Sender.Address) {
			continue
		}
		if verdict := lists.Address(address); verdict.Refused() {
			return verdict.Reason
		}
	}
	return ""
}

// ownMessage reports whether the question is one of our own: a conversation that an agent began.
func ownMessage(reply exchange.Reply, domain string) bool {
	sender, err := identity.ParseAddress(reply.Message.Sender.Address)
	return err == nil && sender.Domain == domain
}

// unlessBlocked keeps our agents from calling agents of hosts that are kept out.
func (s *Server) unlessBlocked(caller pipeline.Caller) pipeline.Caller {
	return listedCaller{caller, s.lists}
}

type listedCaller struct {
	pipeline.Caller
	lists *moderation.Lists
}

// Call refuses what the lists forbid before anything is looked up.
func (c listedCaller) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	if verdict := c.lists.Address(d.To); verdict.Refused() {
		return normalized.Response{}, fault.GiveUp("the operator of this server does not allow calls to "+d.To, nil)
	}
	return c.Caller.Call(ctx, d)
}

const cancelPage = 500

// cancelBlocked cancels what was accepted from senders who are blocked now and is not answered yet.
func cancelBlocked(ctx context.Context, from *store.Store, lists *moderation.Lists, turns *pipeline.Service) (cancelled int, err error) {
	filter := exchange.TurnFilter{ByArrival: true, Limit: cancelPage + 1, States: []string{
		exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld,
	}}
	for {
		page, err := from.Turns(ctx, filter)
		if err != nil {
			return cancelled, err
		}
		page, filter.Before = exchange.NextPage(page, cancelPage, exchange.TurnCursor)
		for _, turn := range page {
			verdict := lists.Sender(turn.Message.Sender)
			if !verdict.Refused() {
				continue
			}
			_, err := turns.Cancel(ctx, turn.ID, verdict.Reason)
			switch {
			case err == nil:
				cancelled++
			case !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound):
				return cancelled, err
			}
		}
		if filter.Before == "" {
			return cancelled, nil
		}
	}
}

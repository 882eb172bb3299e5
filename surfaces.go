package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/adapters/a2a"
	"inbox/adapters/bridge"
	"inbox/adapters/bridge/contract"
	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/httpserver"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

func (s *Server) openA2A() (module exchange.Module, err error) {
	tokens, err := s.newWebTokens()
	if err != nil {
		return module, err
	}

	s.a2a, err = a2a.New(a2a.Options{
		Verifier: tokens, Peers: s.takesPeer, Issuers: s.issuerCards(), CardKeys: s.keyring.SigningAll,
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, SupportedInbound: s.inbound(),
		Receiver: s.pipeline, Directory: s.registry, Turns: s.store, Runs: s.pipeline, Tokens: s.store,
		Claims: s.store.State(), Blobs: s.blobs, Logger: s.logger, Validator: s.validator, Present: s.demands.Present,
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

// newWebTokens makes what checks signed tokens: those of the issuers that the operator configured, and what agents of
// other servers sign for themselves. Hosts that the operator wrote may be private.
func (s *Server) newWebTokens() (*webtoken.Verifier, error) {
	options := webtoken.Options{
		Replays: replays{s.store.State()}, Domain: s.config.Domain, AllowHTTP: s.config.Federation.AllowPrivate,
	}
	written := map[string]bool{}
	for i := range s.config.A2A.Issuers {
		issuer := &s.config.A2A.Issuers[i]
		options.Issuers = append(options.Issuers, webtoken.Issuer{
			Issuer: issuer.Issuer, JWKSURL: issuer.JWKSURL, Discovery: issuer.Discovery, Audiences: issuer.Audiences,
			Algs: issuer.Algs, Method: issuerMethod(issuer.Method), Untyped: issuer.Untyped, Unscoped: issuer.Unscoped,
		})
		for _, address := range []string{issuer.JWKSURL, issuer.Discovery} {
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				written[hostPortOf(u)] = true
			}
		}
	}
	options.Documents = tokenDocuments{peers: keyDocuments{s.client}, written: written, operator: s.client}
	return webtoken.New(options)
}

func issuerMethod(name string) string {
	switch name {
	case "", "a2a-oauth":
		return identity.MethodA2AOAuth
	case "a2a-jwt":
		return identity.MethodA2AJWT
	}
	return name
}

func hostPortOf(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// tokenDocuments fetches key documents; those on hosts of configured issuers with a client that trusts them.
type tokenDocuments struct {
	peers    keyDocuments
	written  map[string]bool
	operator *safehttp.Client
}

// Fetch gets one document.
func (d tokenDocuments) Fetch(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if host := hostPortOf(u); d.written[host] {
		return keyDocuments{d.operator.Trusting(host)}.Fetch(ctx, address)
	}
	return d.peers.Fetch(ctx, address)
}

// issuerCards are the issuers as cards name them.
func (s *Server) issuerCards() []a2a.IssuerCard {
	cards := make([]a2a.IssuerCard, 0, len(s.config.A2A.Issuers))
	for i := range s.config.A2A.Issuers {
		cards = append(cards, a2a.IssuerCard{Name: s.config.A2A.Issuers[i].Issuer, Discovery: s.config.A2A.Issuers[i].Discovery})
	}
	return cards
}

// takesPeer reports whether what a peer signs for itself is worth a look at its keys: it is not kept out, and the agent's
// rules would let it in when it is who it says, or the operator trusts its domain.
func (s *Server) takesPeer(agent string, peer identity.Address) bool {
	entry, known := s.registry.Lookup(agent)
	if !known || s.lists.Address(peer.String()).Refused() || s.lists.Host(peer.Domain).Refused() {
		return false
	}
	proven := identity.Transport(identity.TransportProof{
		Domain: s.config.Domain, Subject: peer.Acct(), Method: identity.MethodA2AJWT, Assurance: identity.AssuranceAgent,
		Recipient: entry.Profile.Address, IssuedAt: time.Now(),
	})
	return entry.Settings.Access.Decide(identity.PurposeMessage, peer.String(), []identity.Evidence{proven}).Allowed || s.trustsDomain(peer.Domain)
}

// trustsDomain reports whether an entry of [[trust]] in force names a domain or its did:web.
func (s *Server) trustsDomain(domain string) bool {
	now := time.Now()
	return slices.ContainsFunc(s.config.Trust, func(entry config.Trust) bool {
		until := entry.Expires
		return (sameIssuer(entry.Issuer, domain) || sameIssuer(entry.Issuer, identity.DIDOf(domain))) && (until.IsZero() || now.Before(until))
	})
}

func sameIssuer(a, b string) bool {
	left, err := identity.CanonicalIssuer(a)
	right, bad := identity.CanonicalIssuer(b)
	return err == nil && bad == nil && left == right
}

// assert signs for one of our agents who it is, for one request to an agent elsewhere.
func (s *Server) assert(ctx context.Context, agent, audience string) (string, error) {
	entry, known := s.registry.Lookup(agent)
	if !known {
		return "", fmt.Errorf("no agent %q", agent)
	}
	key, err := s.keyring.Signing(ctx)
	if err != nil {
		return "", err
	}
	return webtoken.Assert(key, entry.Profile.Address, audience, time.Now())
}

// newPush returns what webhooks of A2A tasks need.
func (s *Server) newPush() a2a.Push {
	pairs := webhookPairs(s.config.A2A.WebhookHosts)
	named := func(u *url.URL) bool { return slices.Contains(pairs, webhookPair(u)) }
	return a2a.Push{Watches: s.store, Sealer: s.sealer, Web: s.client.Allowing(pairs...), Named: named}
}

// webhookPairs are the host:port pairs of a2a.webhook_hosts; a host without a port is meant at both ports of the web.
func webhookPairs(hosts []string) (pairs []string) {
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err == nil {
			pairs = append(pairs, strings.ToLower(host))
			continue
		}
		bare := strings.ToLower(strings.Trim(host, "[]"))
		pairs = append(pairs, net.JoinHostPort(bare, "443"), net.JoinHostPort(bare, "80"))
	}
	return pairs
}

// webhookPair is the host:port of an address.
func webhookPair(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (s *Server) openChat() (module exchange.Module, err error) {
	s.chat, err = chat.New(chat.Options{
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, Issued: issuedTokens{s.a2a}, Receiver: chatReceiver{s.pipeline, s.store, s.logger}, Directory: s.registry, Turns: s.store, Runs: s.pipeline,
		Tokens: s.store, Blobs: s.blobs, Guests: s.takesGuests, ShowsTools: s.showsTools, Present: s.demands.Present, FileURL: s.activitypub.MediaURL,
		ToolKind: clientToolKinds(s.config.Agents), Tools: chatTools{s.store, s.pipeline}, Memory: s.store,
		Origins: s.config.Chat.AllowedOrigins, WaitLimit: s.config.Chat.Wait, Logger: s.logger,
	})
	if err != nil {
		return module, err
	}
	return s.chat.Module(), nil
}

// issuedTokens lets the holders of signed tokens into the chat as A2A does.
type issuedTokens struct{ *a2a.Adapter }

// Credential checks the token of a request to an agent.
func (i issuedTokens) Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (chat.Credential, error) {
	found, err := i.Adapter.Credential(r, agent, address, audiences...)
	return chat.Credential{Sender: found.Sender, May: found.May}, err
}

// takesGuests reports whether an agent takes messages of somebody who proves nothing: it answers them, or they wait for the
// operator who wants that.
func (s *Server) takesGuests(name string) bool {
	entry, known := s.registry.Lookup(name)
	held := s.config.Chat.HoldGuests && entry.Settings.Unverified == agents.UnverifiedHold
	if !known || entry.Settings.Unverified != agents.UnverifiedAnswer && !held {
		return false
	}
	guest := identity.Address{Local: "guest", Domain: s.config.Domain}
	return entry.Settings.Access.Decide(identity.PurposeMessage, guest.String(), nil).Allowed
}

func (s *Server) showsTools(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.ExposeTools
}

// openBridge makes the edge for bridges and connectors.
func (s *Server) openBridge() (module exchange.Module, err error) {
	connectors, err := s.connectors()
	if err != nil {
		return module, err
	}
	s.bridge, err = bridge.New(bridge.Options{
		Domain: s.config.Domain, Receiver: s.pipeline, Directory: s.registry, Turns: s.store, Runs: s.pipeline, Tokens: s.store,
		Queue: s.store.Bridge(nil), Sessions: s.store, Tasks: s.store.TaskRuns(), Sealer: s.sealer, Web: s.client, Blobs: s.blobs,
		SessionOf: func(owner string) contract.Sessions { return s.store.SessionMap(owner) },
		Validator: s.validator, Present: s.demands.Present, Connectors: connectors, WaitLimit: s.config.Bridges.MaxWait, Logger: s.logger,
		Policy: exchange.Policy{Schedule: s.config.Bridges.Retry}, CallbackConcurrency: s.config.Queue.DeliveryConcurrency,
	})
	if err != nil {
		return module, err
	}
	return s.bridge.Module(), nil
}

// connectors makes what the configuration says about them. Their callbacks are addresses that the operator wrote.
func (s *Server) connectors() ([]bridge.Connector, error) {
	list := make([]bridge.Connector, 0, len(s.config.Connectors))
	for _, entry := range s.config.Connectors {
		web, err := s.callbackClient(entry)
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
func (s *Server) callbackClient(entry config.Connector) (*safehttp.Client, error) {
	if entry.CallbackURL == "" {
		return s.client, nil
	}
	_, client, err := s.trustingOperator(entry.CallbackURL)
	if err != nil {
		return nil, fmt.Errorf("connectors: callback_url of %s: %w", entry.Name, err)
	}
	return client, nil
}

// chatReceiver accepts what comes by chat and keeps its sessions, so that holders of a token find them again at
// /v1/sessions. Guests have none: their session is a secret that nobody lists.
type chatReceiver struct {
	receiver interface {
		Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error)
	}
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
		Title: firstLine(normalized.PlainText(in.Message.Parts)), CreatedAt: now, UpdatedAt: now,
	}
	_, created, err := c.sessions.CreateSession(ctx, session)
	if err != nil || created {
		return err
	}
	return c.sessions.TouchSession(ctx, session.Owner, session.ID, now)
}

// firstLine is the title of a session that nobody named.
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

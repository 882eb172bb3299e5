// Package email is the adapter for RFC 5322 mail: an SMTP server that never loses or doubles what it acknowledged, what a mail
// proves as evidence about its sender, its parts as a message, and replies that are threaded, signed and sent to their
// recipients, to a smarthost or kept for the operator to read; reports find their delivery.
//
// It is no mail store, no submission server and no relay: it accepts mail for agents of one domain and for its postmaster, and
// it sends nothing but replies. What is mail and no agent lies in the packages below it: message (syntax), dns, authentication,
// text, outbound and bounce. They know neither this package nor each other, apart from message and dns.
package email

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/bounce"
	"inbox/adapters/email/dns"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/httpserver"
	"inbox/internal/redact"
	"inbox/normalized"
)

// Adapter is the face of email: what a node starts, serves and calls. Its parts own their state, and each knows only those
// that it needs.
type Adapter struct {
	*site
	keys       []authentication.Key // that sign
	recipients *recipients
	inbox      *inbox
	outbox     *outbox
	server     *smtpServer
}

// site is what every part knows: the options and our domain.
type site struct {
	options Options
	domain  string // host alone, lower-case punycode
	log     *slog.Logger
	now     func() time.Time
}

// New checks the options and loads or makes the signing key. It opens no port: see Listen.
func New(options Options) (*Adapter, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}

	s := &site{options: options, log: options.Logger, now: options.Now}
	if s.domain, err = identity.ParseDomain(identity.HostOf(options.Domain)); err != nil {
		return nil, fmt.Errorf("domain: %w", err)
	}

	a := &Adapter{site: s}
	resolver := dns.New(options.Resolver)
	a.server = &smtpServer{site: s, buffered: memoryLimiter(options)}

	var sender transport // nil in mode capture
	if options.Mode != ModeCapture {
		if sender, err = s.newTransport(resolver, a.server); err != nil {
			return nil, err
		}
	}

	if a.keys, err = loadSigners(options); err != nil {
		return nil, err
	}

	key, err := loadTokenKey(options.State)
	if err != nil {
		return nil, err
	}

	tokens := bounce.NewTokens(key, s.domain)
	checker := authentication.New(authentication.Options{Resolver: resolver, Domain: s.domain, Sealers: options.ARCSealers, Now: s.now})
	reporter := &reporter{
		deliveries: options.Deliveries, suppressions: options.Suppressions, tokens: tokens, checker: checker, domain: s.domain, log: s.log, now: s.now,
	}
	a.outbox = &outbox{
		site: s, tokens: tokens, reporter: reporter, sender: sender,
		renderer: &renderer{options: &s.options, domain: s.domain, tokens: tokens, log: s.log},
		signer:   authentication.NewSigner(s.domain, a.keys, chainField),
	}

	verifier := &verifier{site: s, tries: newTryCounter(s.now), checker: checker}
	a.recipients = &recipients{site: s, tokens: tokens, reporter: reporter}
	a.inbox = &inbox{site: s, verifier: verifier, reporter: reporter, recipients: a.recipients}
	a.server.recipients, a.server.inbox = a.recipients, a.inbox
	return a, nil
}

// ChannelName is the name of the channel.
const ChannelName = "email"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaEmail, Channel: a, Policy: a.options.Policy,
		Routes: a.Routes(), Listeners: []exchange.Listener{a}, Opener: a, Links: a.Links,
		Keys: []redact.Key{{Tag: shortestToken}},
	}
}

var _ exchange.Acknowledger = (*Adapter)(nil)

// The face. Each method is described where its part has it.

// Listen opens smtp.listen. Run calls it when it was not called before.
func (a *Adapter) Listen() error { return a.server.Listen() }

// Host takes the mail of another domain at the listener of a: other must have none. A mail is for one of the domains; a peer that names
// recipients of two sends it twice. It is called before Listen.
func (a *Adapter) Host(other *Adapter) { a.server.host(other.server) }

// Use takes a listener that another program has opened, in the place of Listen.
func (a *Adapter) Use(listener net.Listener) { a.server.use(listener) }

// Addr returns the listening address, nil before Listen or without a server.
func (a *Adapter) Addr() net.Addr { return a.server.Addr() }

// Run serves until ctx ends, then accepts nothing new and lets open transactions finish within ShutdownTimeout.
// It may be called once.
func (a *Adapter) Run(ctx context.Context) error {
	if a.outbox.sender != nil {
		defer a.outbox.sender.Close()
	}
	return a.server.Run(ctx)
}

// Plan implements exchange.Channel: the Message-ID of an answer and one destination per recipient domain.
func (a *Adapter) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	return a.outbox.Plan(ctx, reply)
}

// Deliver makes one attempt to bring an answer to one domain.
func (a *Adapter) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return a.outbox.Deliver(ctx, delivery)
}

// Open begins a conversation of an agent with a mailbox.
func (a *Adapter) Open(ctx context.Context, agent, address, subject string) (json.RawMessage, error) {
	return a.outbox.Open(ctx, agent, address, subject)
}

// Parties returns the principals of the mailbox that an opened mail is for.
func (a *Adapter) Parties(opened json.RawMessage) []string {
	notes, ok := readRoute(opened)
	if !ok || !notes.Opened {
		return nil
	}
	return principalsOf(a.options.Domain, notes.From)
}

// OpenForward begins a mail by which one that came to a role address is sent on; see outbox.OpenForward.
func (a *Adapter) OpenForward(local, address, subject string) (json.RawMessage, error) {
	return a.outbox.OpenForward(local, address, subject)
}

// minAckAfter is how old a mail is at least before it is acknowledged: no sender expects the answer to a mail within
// seconds, so a second mail then would be noise.
const minAckAfter = time.Minute

// AckAfter returns the time that the operator wants, but at least a minute.
func (a *Adapter) AckAfter(wanted time.Duration) time.Duration { return max(wanted, minAckAfter) }

// Reaches reports whether an address is one of mail: @user@domain is an account elsewhere.
func (a *Adapter) Reaches(address string) bool { return !strings.HasPrefix(address, "@") }

// shortestToken is the length of the shortest token in a tag of our mailboxes: they say who may answer, and what bounced.
const shortestToken = 26

// Proves leaves it to the evidence itself, which names the mailbox.
func (a *Adapter) Proves(context.Context, *identity.Evidence, string) (proven, known bool, err error) {
	return false, false, nil
}

// Links returns the agent's mailto link (message contract, section 11).
func (a *Adapter) Links(agent exchange.AgentProfile) []exchange.Link {
	address, err := identity.ParseAddress(agent.Address)
	if err != nil {
		return nil
	}
	return []exchange.Link{{Rel: "mailto", Href: "mailto:" + address.Mail()}}
}

// DNSRecord returns the name and value of this adapter's own key record.
func (a *Adapter) DNSRecord() (name, value string) {
	return DNSRecord(a.domain, a.options.DKIMSelector, a.keys[0].Signer)
}

// PolicyPath is where the policy of MTA-STS is found, on the host mta-sts.<domain> (RFC 8461, section 3.3).
const PolicyPath = "/.well-known/mta-sts.txt"

// PolicyFile returns the MTA-STS policy of a domain whose only mail server is hostname, and the id of its TXT record.
func PolicyFile(mode, hostname string) (text, id string) { return outbound.PolicyFile(mode, hostname) }

// Routes are the adapter's web pages: the policy file, for its own host only.
func (a *Adapter) Routes() []httpserver.Route {
	return []httpserver.Route{{Method: http.MethodGet, Pattern: PolicyPath, Handler: http.HandlerFunc(a.servePolicy)}}
}

func (a *Adapter) servePolicy(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}

	if a.options.PolicyMode == "" || !strings.EqualFold(strings.TrimSuffix(host, "."), "mta-sts."+a.domain) {
		http.NotFound(w, r)
		return
	}

	text, _ := PolicyFile(a.options.PolicyMode, a.options.Hostname)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write([]byte(text))
}

// DeliveryIn returns the id of the delivery that a return path of ours names, for operators.
func DeliveryIn(address string) (deliveryID string, found bool) { return bounce.Named(address) }

package email

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Modes of sending.
const (
	ModeCapture   = "capture"   // nothing leaves; mails are kept for the operator
	ModeSmarthost = "smarthost" // everything goes to one configured server
	ModeMX        = "mx"        // direct to the recipients' servers
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes     = 25 << 20
	DefaultMaxConnections      = 200
	DefaultMaxConnectionsPerIP = 10
	DefaultPerMinute           = 60
	DefaultMailsPerConnection  = 20
	DefaultGreetingDelay       = 200 * time.Millisecond
	DefaultRefusalDelay        = time.Second
	DefaultMaxBufferedBytes    = 256 << 20
	DefaultShutdownTimeout     = 25 * time.Second
	DefaultSelector            = "inbox"
)

// Agents knows who lives at our domain. Names are compared without case.
type Agents interface {
	Agent(name string) (exchange.AgentProfile, bool)
}

// State keeps this adapter's own durable documents, shared by all nodes.
type State interface {
	KeyState
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

// KeyState is what the signing key needs.
type KeyState interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
}

// PolicyFetcher gets the MTA-STS policy of a domain.
type PolicyFetcher = outbound.PolicyFetcher

// Deliveries is told of reports about mails that had left.
type Deliveries interface {
	// Bounced writes a report to the delivery and its timeline; fault.NotFound when there is no such delivery.
	Bounced(ctx context.Context, bounce exchange.Bounce) error
	// DeliveryOf finds the delivery of the mail with a Message-ID to a domain.
	DeliveryOf(ctx context.Context, messageID, domain string) (deliveryID string, found bool, err error)
	// DestinationOf returns the notes of a delivery's destination; fault.NotFound when there is no such delivery.
	DestinationOf(ctx context.Context, deliveryID string) (exchange.Destination, error)
}

// Suppressions keeps the addresses that take no mail.
type Suppressions interface {
	// Suppressed returns those of the addresses, in lower case, that are suppressed. A proven mail to an agent that was accepted ends a
	// suppression: it is not told of them, and looks for one where it finds an address suppressed.
	Suppressed(ctx context.Context, addresses []string) ([]exchange.Suppression, error)
	// MailFailed counts a failure and reports whether the address is suppressed now and was not before.
	MailFailed(ctx context.Context, failure exchange.MailFailure) (suppressed bool, err error)
	// Unsuppress lets mail go to an address again and reports whether it was suppressed.
	Unsuppress(ctx context.Context, address string) (lifted bool, err error)
}

// Options configures an Adapter. Domain, Receiver, Agents, Threads, State, Mailbox, Blobs and Resolver are required.
type Options struct {
	Domain   string // the part after the @; a port is cut off for mail
	Hostname string // name in greetings, Received and Authentication-Results; default: Domain
	Listen   string // host:port of the SMTP server; empty = no server, replies still leave

	MaxMessageBytes     int64 // largest mail accepted, exactly; default 25 MiB
	MaxUnprovenBytes    int64 // largest mail accepted whose sender nothing proves; 0 = MaxMessageBytes
	MaxConnections      int   // at once; default 200
	MaxConnectionsPerIP int   // at once from one IPv4 address or IPv6 /64, wider networks three and nine times as many; default 10

	ConnectionsPerMinute int           // begun from one IPv4 address or IPv6 /64, wider networks as above; default 60
	MailsPerMinute       int           // transactions, counted likewise; default 60
	Reports              string        // address for reports of other servers; where it is one of Domain, its mail is the operator's
	MailsPerConnection   int           // without a proven sender; default 20
	GreetingDelay        time.Duration // how long the greeting waits for peers that speak first; default 200 ms, negative = not
	RefusalDelay         time.Duration // how long the refusal of a recipient waits; default 1 s

	MaxBufferedBytes int64         // mail bytes in memory at once, over all connections; default 256 MiB
	ShutdownTimeout  time.Duration // how long open transactions may take after Run's context ended; default 25 s
	AllowPrivate     bool          // development: loopback is not limited, single-label domains are mail domains, no TLS needed for a login
	TLSConfig        *tls.Config   // offers STARTTLS; nil = plain text only

	Policy exchange.Policy // of deliveries and conversations

	Mode                string             // ModeCapture (default), ModeSmarthost or ModeMX
	Smarthost           string             // smtp://user:pass@host:port or smtps://…
	SmarthostTLS        *tls.Config        // roots for the smarthost's certificate; nil = the system's
	Dialer              outbound.Dialer    // required with ModeSmarthost and ModeMX
	MXPort              int                // of the recipients' servers; default 25
	MXTLS               *tls.Config        // roots for certificates that an MTA-STS policy demands; nil = the system's
	PolicyMode          string             // of our own MTA-STS policy file: none, testing or enforce; empty = none is served
	Policies            PolicyFetcher      // of MTA-STS; nil = policies are not asked for
	SecureDNS           outbound.SecureDNS // a validating resolver on this machine: TLSA records of recipients' servers hold; nil = no DANE
	DKIMSelector        string             // default "inbox"
	DKIMEd25519Selector string             // of a second signature with Ed25519; empty = none
	DKIMKeyFile         string             // PEM of an RSA key; empty = one is generated and kept in State
	AllowNewRecipients  bool               // agents may write to people who were not in the conversation

	ThreadTags       bool // Reply-To of our answers says what it is that is answered
	RefuseQuarantine bool // of mail that fails DMARC, as of a policy of reject

	ARCSealers []string // domains of forwarders whose word about DMARC counts (RFC 8617); default none

	// Present makes a demand ready for its reader: it checks the address once more and puts the secret into it, so it
	// is called only for the mail to the asker. Default: policypart.Part.Confine to https://Domain.
	Present func(policypart.Part) policypart.Part
	MaxHops func(agent string) int // ceiling of a chain of agents that begins with the agent; default 4

	// Refuses reports whether the operator keeps an address out; it is asked about From and MAIL FROM of a mail to an agent,
	// before anything is looked up. Optional.
	Refuses func(address string) bool

	// Closed returns why an agent takes no mail just now; an empty name stands for the operator's mailbox. It is asked for every
	// recipient and once more before the mail is read. Optional.
	Closed func(agent string) exchange.Closure

	// AliasOf returns the agent that the operator gave a further address, in lower case and without a tag; empty = none. Default: no agent
	// has one.
	AliasOf  func(address string) (agent string)
	CatchAll string // agent that gets mail to addresses of the domain that no one has; empty = it is refused

	// AnswersLists reports whether an agent answers the author of a mail that came through a mailing list and names the agent
	// in To; the list itself never hears of it. Default: no agent does.
	AnswersLists func(agent string) bool

	// ReplyTo reports for an agent how far a Reply-To is followed, one of the ReplyTo constants. Default: ReplyToOrganization.
	ReplyTo func(agent string) string
	// RepliesToAll reports whether answers of an agent go to all of To and Cc to whom they may. Default: no agent's do.
	RepliesToAll func(agent string) bool

	// FileLink returns an address where a file that is too large for a mail can be had; empty = nowhere. Optional.
	FileLink   func(reply exchange.Reply, part normalized.Part) string
	QuoteLines int // of the question that an answer repeats, at most 30; 0 = none

	// Deliveries is told of reports about mails that had left, Suppressions keeps addresses that take nothing. Both are
	// optional.
	Deliveries   Deliveries
	Suppressions Suppressions
	// Alive is told of domains from which a proven mail came. Optional.
	Alive func(ctx context.Context, domain string)

	Receiver exchange.Receiver
	Agents   Agents
	Threads  exchange.Threads
	// Said returns what was said last in a conversation of an agent. Text that only looks like the mail that is answered is compared with it;
	// nil = its looks decide.
	Said     func(ctx context.Context, agent, threadID string) ([]string, error)
	State    State
	Mailbox  Mailbox // of the operator
	Blobs    exchange.Blobs
	Resolver dns.Source
	Logger   *slog.Logger     // default: slog.Default
	Now      func() time.Time // default: time.Now
}

func (o Options) withDefaults() (Options, error) {
	for name, missing := range map[string]bool{
		"Domain": o.Domain == "", "Receiver": o.Receiver == nil, "Agents": o.Agents == nil, "Threads": o.Threads == nil,
		"State": o.State == nil, "Mailbox": o.Mailbox == nil, "Blobs": o.Blobs == nil, "Resolver": o.Resolver == nil,
	} {
		if missing {
			return o, fmt.Errorf("email: option %s is required", name)
		}
	}

	o.Hostname = cmp.Or(o.Hostname, identity.HostOf(o.Domain))
	o.Mode = cmp.Or(o.Mode, ModeCapture)
	o.DKIMSelector = cmp.Or(o.DKIMSelector, DefaultSelector)
	o.MXPort = cmp.Or(o.MXPort, outbound.DefaultMXPort)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.MaxConnectionsPerIP = cmp.Or(o.MaxConnectionsPerIP, DefaultMaxConnectionsPerIP)
	o.ConnectionsPerMinute = cmp.Or(o.ConnectionsPerMinute, DefaultPerMinute)
	o.MailsPerMinute = cmp.Or(o.MailsPerMinute, DefaultPerMinute)
	o.MailsPerConnection = cmp.Or(o.MailsPerConnection, DefaultMailsPerConnection)
	o.GreetingDelay = cmp.Or(o.GreetingDelay, DefaultGreetingDelay)
	o.RefusalDelay = cmp.Or(o.RefusalDelay, DefaultRefusalDelay)
	o.MaxBufferedBytes = cmp.Or(o.MaxBufferedBytes, max(DefaultMaxBufferedBytes, 2*o.MaxMessageBytes))
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, DefaultShutdownTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	if o.Present == nil {
		base := &url.URL{Scheme: "https", Host: o.Domain}
		o.Present = func(part policypart.Part) policypart.Part { return part.Confine(base) }
	}

	if o.MaxHops == nil {
		o.MaxHops = func(string) int { return defaultMaxHops }
	}

	if o.DKIMEd25519Selector != "" && (!validLabel(o.DKIMEd25519Selector) || o.DKIMEd25519Selector == o.DKIMSelector) {
		return o, fmt.Errorf("mail.dkim_ed25519_selector: %q must be letters, digits, hyphens and dots, and another one than mail.dkim_selector", o.DKIMEd25519Selector)
	}

	if !validLabel(o.DKIMSelector) {
		return o, fmt.Errorf("mail.dkim_selector: %q must be letters, digits, hyphens and dots", o.DKIMSelector)
	}

	return o, nil
}

func validLabel(text string) bool {
	return text != "" && len(text) <= 63 && strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

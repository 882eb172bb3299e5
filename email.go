package inbox

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"

	"inbox/adapters/email"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// Bounds of direct delivery to one domain.
const (
	domainConcurrency = 5
	domainBurst       = 10
)

// mailPolicy bounds what goes to the destinations' servers, where mail goes there directly, and conversations with programs.
func mailPolicy(config *Config) exchange.Policy {
	l := &config.Limits
	return exchange.Policy{
		Schedule: config.Mail.Retry, Limits: mailLimits(config),
		Conversation: exchange.ConversationLimits{Thread: rates(l.MailThread), Sender: rates(l.MailSender), Same: l.SameMessages, Machine: l.MailPace},
	}
}

func mailLimits(config *Config) exchange.DeliveryLimits {
	if config.Mail.Mode != email.ModeMX {
		return exchange.DeliveryLimits{}
	}
	return exchange.DeliveryLimits{Concurrency: domainConcurrency, PerSecond: float64(config.Mail.DomainRate) / 60, Burst: domainBurst, WaitsTogether: true}
}

// mailReports brings reports about mails to their deliveries.
type mailReports struct {
	*resources
	delivery *delivery.Service
}

// Bounced writes a report to the delivery and its timeline.
func (m mailReports) Bounced(ctx context.Context, bounce exchange.Bounce) error {
	return m.delivery.Bounced(ctx, bounce)
}

// DeliveryOf finds the delivery of a mail to a domain; the left half of our Message-IDs is the reply's id.
func (m mailReports) DeliveryOf(ctx context.Context, messageID, domain string) (string, bool, error) {
	replyID, _ := email.ReplyIDOf(messageID)
	reply, _, err := m.store.Reply(ctx, replyID)
	if fault.Is(err, fault.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}

	records, err := m.store.Deliveries(ctx, delivery.Filter{TurnID: reply.TurnID, Key: domain, Limit: 100})
	if err != nil {
		return "", false, err
	}

	for _, record := range records {
		if record.ReplyID == reply.ID && record.NativeID == messageID {
			return record.ID, true, nil
		}
	}

	return "", false, nil
}

// DestinationOf returns where a delivery went.
func (m mailReports) DestinationOf(ctx context.Context, id string) (exchange.Destination, error) {
	record, _, err := m.store.Delivery(ctx, id)
	return exchange.Destination{Key: record.Key, Address: record.Address, Data: record.Data}, err
}

// stsFetcher gets the MTA-STS policies of other domains.
type stsFetcher struct {
	client *safehttp.Client
	port   int
}

// FetchPolicy gets a policy as RFC 8461, section 3.3, demands: a valid certificate, no redirects, text/plain.
func (f stsFetcher) FetchPolicy(ctx context.Context, domain string, limit int64) ([]byte, error) {
	host := "mta-sts." + domain
	if f.port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(f.port))
	}

	response, err := f.client.Get(ctx, "https://"+host+email.PolicyPath, safehttp.GetOptions{MaxBytes: limit, MaxRedirects: -1})
	if err != nil {
		return nil, fmt.Errorf("fetch policy: %w", err)
	}
	defer func() { _ = response.Body.Close() }()

	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || err != nil || media != "text/plain" {
		return nil, fmt.Errorf("fetch policy: %s with content type %q", response.Status, response.Header.Get("Content-Type"))
	}

	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}

	return text, nil
}

// mailDelivery fills in what sending mail needs.
func (m *modules) mailDelivery(options *email.Options) {
	options.Policy = mailPolicy(m.config)
	options.MXPort = m.config.Mail.MXPort

	if m.config.Mail.DANE {
		// The validation of the settings has let only an address of this machine pass.
		if secure, err := safehttp.NewSecureResolver(m.config.DNS.Resolver); err == nil {
			options.SecureDNS = secure
		}
	}

	options.DKIMEd25519Selector = m.config.Mail.DKIMEd25519Selector
	options.PolicyMode = m.config.Mail.MTASTS
	options.QuoteLines = m.config.Mail.QuoteLines
	options.ThreadTags = m.config.Mail.ThreadTags
	options.FileLink = m.activitypub.MediaURL
	options.AnswersLists, options.Closed = m.answersLists, m.availability.Closed
	options.AliasOf, options.CatchAll = m.aliasOf, m.config.Mail.CatchAll
	options.ReplyTo, options.RepliesToAll = m.followsReplyTo, m.repliesToAll
	options.Policies = stsFetcher{m.client, m.config.Mail.MTASTSPort}
	options.Deliveries = mailReports{m.resources, m.delivery}
	options.Suppressions = suppressions{m.store, m.vault(), m.logger}
	options.Alive = func(ctx context.Context, domain string) { m.delivery.Alive(ctx, email.ChannelName, domain) }
}

func (m *modules) openEmail() (module exchange.Module, err error) {
	options := email.Options{
		Domain: m.config.Domain, Hostname: m.config.SMTP.Hostname, Listen: m.config.SMTP.Listen,
		MaxMessageBytes: int64(m.config.SMTP.MaxMessageBytes), MaxUnprovenBytes: int64(m.config.SMTP.UnprovenMaxBytes), MaxConnections: m.config.SMTP.MaxConnections,
		MaxConnectionsPerIP: m.config.SMTP.ConnectionsPerAddress, ConnectionsPerMinute: m.config.SMTP.ConnectionsPerMinute,
		MailsPerMinute: m.config.SMTP.MailsPerMinute, Reports: m.config.Mail.Reports, ARCSealers: m.config.Mail.ARCSealers, RefuseQuarantine: m.config.Mail.RefuseQuarantine, AllowPrivate: m.config.Federation.AllowPrivate,
		Mode: m.config.Mail.Mode, Smarthost: m.config.Mail.Smarthost.Reveal(),
		DKIMSelector: m.config.Mail.DKIMSelector, DKIMKeyFile: m.config.Mail.DKIMKeyFile, ShutdownTimeout: m.config.ShutdownGrace,
		Receiver: m.pipeline, Agents: m.registry, Threads: m.store, Said: m.store.Said, State: m.vault(), Mailbox: m.mailbox, Blobs: m.blobs,
		Resolver: m.resolver, Logger: m.logger, Present: m.demands.Present, MaxHops: m.maxHops, Refuses: m.lists.addressRefused,
	}

	if m.config.HostedBy != "" {
		options.Listen = "" // the domain at the top takes its mail
	}

	m.mailDelivery(&options)
	if err := m.mailTransport(&options); err != nil {
		return module, err
	}
	if m.email, err = email.New(options); err != nil {
		return module, err
	}

	return m.email.Module(), nil
}

// mailTransport lets mail leave to the smarthost, which the operator wrote, and offers STARTTLS where the web server has
// a certificate.
func (m *modules) mailTransport(options *email.Options) (err error) {
	options.Dialer = m.client
	if options.Mode == email.ModeSmarthost {
		address, err := email.SmarthostAddress(options.Smarthost)
		if err != nil {
			return err
		}
		options.Dialer = m.client.Trusting(address)
		if options.SmarthostTLS, err = email.SmarthostTLS(m.config.Mail.SmarthostRootsFile); err != nil {
			return err
		}
	}

	options.TLSConfig, err = m.certificate(options.Hostname, false)
	return err
}

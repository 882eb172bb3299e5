package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/internal/fault"
)

var (
	metricPlain = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_email_tls_fallback_total", Help: "Sessions with recipients' servers that went on in the clear after TLS had failed."})
	metricTested = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_email_sts_testing_failures_total", Help: "Sessions that an MTA-STS policy in testing mode would have refused."})
)

// Bounds of direct delivery (reference: queue and delivery).
const (
	maxOutgoing      = 25               // sessions at once with all recipients' servers
	maxSessions      = 2                // sessions that one attempt opens
	maxPerMX         = 10               // mails over one session
	attemptLimit     = 30 * time.Minute // one attempt, whatever the servers do
	startingSessions = 2                // sessions at once with one domain, until some mails were taken
	mostSessions     = 5
)

// DefaultMXPort is where mail servers listen.
const DefaultMXPort = 25

// Direct sends mails to the servers that the DNS names for their recipients.
type Direct struct {
	domain    string // ours
	hello     string
	port      int
	dialer    Dialer
	dns       *dns.Resolver
	tls       *tls.Config
	own       func() net.Addr
	neighbour func(domain string) bool // nil = none is
	policies  *policyCache
	secureDNS SecureDNS // nil = no DANE
	log       *slog.Logger

	semaphore chan struct{} // of all sessions
	limits    *domainLimits
	pauses    *pauses
	pools     *domainPools
}

// DirectOptions configures a Direct. All but TLS, SecureDNS, Policies and Own are required.
type DirectOptions struct {
	Domain    string      // ours; mail for it loops
	Hostname  string      // in EHLO
	Port      int         // of the recipients' servers
	TLS       *tls.Config // roots for certificates that an MTA-STS policy demands; nil = the system's
	Dialer    Dialer
	Resolver  *dns.Resolver
	SecureDNS SecureDNS     // nil = no DANE
	Policies  PolicyFetcher // of MTA-STS; nil = policies are not asked for
	State     PolicyState
	Own       func() net.Addr // the address of our listener, which is dialled for neighbours only
	// Neighbour reports whether mail for another domain comes to the same listener; nil = for none.
	Neighbour func(domain string) bool
	Now       func() time.Time
	Logger    *slog.Logger
}

// NewDirect returns a transport to the servers of the recipients.
func NewDirect(o DirectOptions) (*Direct, error) {
	if o.Dialer == nil {
		return nil, errors.New("email: option Dialer is required with mail.mode = mx")
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}

	return &Direct{
		domain: o.Domain, hello: o.Hostname, port: o.Port, dialer: o.Dialer, dns: o.Resolver, tls: config, own: o.Own, neighbour: o.Neighbour, secureDNS: o.SecureDNS,
		policies: newPolicyCache(o.Resolver, o.State, o.Policies, o.Now, o.Logger), log: o.Logger,
		semaphore: make(chan struct{}, maxOutgoing), limits: newDomainLimits(), pauses: newPauses(o.Now), pools: newDomainPools(),
	}, nil
}

// Send makes one attempt for the recipients of one domain.
func (m *Direct) Send(ctx context.Context, mail Mail) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	if wait := m.pauses.remaining(mail.Domain); wait > 0 {
		return Outcome{}, fault.RetryIn(wait, mail.Domain+" refuses what comes from here by its policy; nothing is sent there for an hour", nil)
	}

	release, err := m.limits.acquire(ctx, mail.Domain)
	if err != nil {
		return Outcome{}, err
	}

	result, err := m.offer(ctx, mail)
	release(err)
	m.pauses.note(mail, result, err)
	return result, classed(mail.Domain, err)
}

func (m *Direct) offer(ctx context.Context, mail Mail) (Outcome, error) {
	select {
	case m.semaphore <- struct{}{}:
		defer func() { <-m.semaphore }()
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}

	pool := m.pools.of(mail.Domain)
	defer m.pools.done(mail.Domain)
	if session := pool.take(); session != nil {
		result, err := session.transact(ctx, mail, pool, maxPerMX)
		if err == nil || session.ended || ctx.Err() != nil || !dead(err) {
			return result.from(session), err
		}
	}

	return m.tryServers(ctx, mail, pool)
}

// tryServers goes through the servers of the domain until one of them answers to the mail.
func (m *Direct) tryServers(ctx context.Context, mail Mail, pool *sessionPool) (Outcome, error) {
	hosts, err := m.mailHosts(ctx, mail.Domain)
	if err != nil {
		return Outcome{}, err
	}

	policy := m.policies.find(ctx, mail.Domain)
	danes, unreachable := m.danes(ctx, mail.Domain, hosts)
	if hosts, err = m.permitted(ctx, mail.Domain, hosts, policy, danes); err != nil {
		return Outcome{}, err
	}

	if hosts = slices.DeleteFunc(hosts, func(host string) bool { return unreachable[host] != nil }); len(hosts) == 0 {
		return Outcome{}, anyOf(unreachable)
	}

	targets, err := m.targets(ctx, mail.Domain, hosts)
	if err != nil {
		return Outcome{}, err
	}

	var last error
	var reached exchange.Reach
	private, sessions := 0, 0
	for _, target := range targets {
		demanded := policy
		if dane := danes[target.host]; dane != nil {
			demanded = stsPolicy{dane: dane}
		}

		session, err := m.open(ctx, target, demanded)
		var loop *loopError
		switch {
		case errors.As(err, &loop):
			return Outcome{}, fault.GiveUp("mail for "+mail.Domain+" loops: "+loop.Error(), err)
		case err != nil:
			if last = err; refusedByPolicy(err) {
				private++
			}

		default:
			result, err := session.transact(ctx, mail, pool, maxPerMX)
			if err == nil || session.ended || !dead(err) {
				return result.from(session), err
			}
			sessions, last = sessions+1, fmt.Errorf("%s: %w", target, err)
			reached = max(reached, exchange.ReachOf(err))
		}

		if ctx.Err() != nil || sessions >= maxSessions {
			break
		}
	}

	if private == len(targets) {
		return Outcome{}, fault.GiveUp("the mail servers of "+mail.Domain+" have no public addresses (5.4.4)", last)
	}

	if !errors.As(last, new(*fault.Fault)) && !errors.As(last, new(*setupError)) {
		last = &setupError{last}
	}
	return Outcome{}, exchange.WithReach(last, reached) // one that took the mail's first command counts, whatever the others are
}

// from adds the server to what it answered.
func (o Outcome) from(session *clientSession) Outcome {
	if o.Text != "" {
		o.Text = session.who + ": " + o.Text
	}
	return o
}

// danes returns what servers demand by their TLSA records, and which must not be reached now.
func (m *Direct) danes(ctx context.Context, domain string, hosts []string) (demands map[string]*danePolicy, unreachable map[string]error) {
	demands, unreachable = map[string]*danePolicy{}, map[string]error{}
	for _, host := range hosts[:min(len(hosts), maxTargets)] {
		dane, err := m.daneOf(ctx, domain, host)
		if err != nil {
			unreachable[host] = err
		} else if dane != nil {
			demands[host] = dane
		}
	}

	return demands, unreachable
}

func anyOf(failures map[string]error) error {
	for _, err := range failures {
		return err
	}
	return nil
}

// permitted leaves out the servers that the domain's own policy does not name (RFC 8461, section 4.1). Those with TLSA
// records have said more than that (RFC 8461, section 2).
func (m *Direct) permitted(ctx context.Context, domain string, hosts []string, policy stsPolicy, danes map[string]*danePolicy) ([]string, error) {
	var named []string
	for _, host := range hosts {
		if policy.names(host) || danes[host] != nil {
			named = append(named, host)
		}
	}

	switch {
	case policy.enforced() && len(named) == 0:
		m.policies.doubt(ctx, domain)
		return nil, fault.RetryIn(0, "no mail server of "+domain+" is named by its MTA-STS policy (4.7.10)", nil)
	case policy.enforced():
		return named, nil
	case policy.mode == PolicyTesting && len(named) < len(hosts):
		metricTested.Inc()
	}

	return hosts, nil
}

// tested notes what a policy in testing mode would have refused.
func (m *Direct) tested(target mxTarget, reason string) {
	metricTested.Inc()
	m.log.Info("the MTA-STS policy, which is in testing mode, is not met", "server", target.String(), "reason", message.Clip(reason, 200))
}

func (m *Direct) checkCertificate(state tls.ConnectionState, host string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, one := range state.PeerCertificates[1:] {
		between.AddCert(one)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: m.tls.RootCAs, Intermediates: between})
	return err
}

// Close ends the sessions that are kept.
func (m *Direct) Close() { m.pools.close() }

// tlsTrouble means that a server could not be spoken to under TLS, which it had offered.
type tlsTrouble struct{ cause error }

func (e *tlsTrouble) Error() string { return "TLS: " + e.cause.Error() }
func (e *tlsTrouble) Unwrap() error { return e.cause }

// loopError means that we reached ourselves.
type loopError struct{ who string }

func (e *loopError) Error() string { return e.who + " is this server itself (5.4.6)" }

// open opens a session with one server. TLS is used where it is offered, whatever the certificate; when it fails, the
// mail goes in the clear, unless the domain's policy or the server's TLSA records demand TLS (RFC 7435, RFC 8461, RFC 7672).
func (m *Direct) open(ctx context.Context, target mxTarget, policy stsPolicy) (*clientSession, error) {
	session, err := m.connect(ctx, target, policy, true)
	var trouble *tlsTrouble
	if errors.As(err, &trouble) && !policy.demandsTLS() && ctx.Err() == nil {
		metricPlain.Inc()
		session, err = m.connect(ctx, target, policy, false)
	}
	return session, err
}

func (m *Direct) connect(ctx context.Context, target mxTarget, policy stsPolicy, secure bool) (*clientSession, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := m.dialer.DialContext(dialing, "tcp", target.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	session, err := m.greet(ctx, conn, target, policy, secure)
	if err != nil {
		_ = conn.Close()
		return nil, &setupError{fmt.Errorf("%s: %w", target, err)}
	}

	return session, nil
}

// greet reads the greeting, sends EHLO and starts TLS.
func (m *Direct) greet(ctx context.Context, conn net.Conn, target mxTarget, policy stsPolicy, secure bool) (*clientSession, error) {
	_ = conn.SetDeadline(time.Now().Add(commandTimeout))
	text := textproto.NewConn(&replyConn{Conn: conn})
	_, greeting, err := text.ReadResponse(220)
	if err != nil {
		return nil, err
	}

	if name, _, _ := strings.Cut(greeting, " "); m.isOurs(strings.TrimSpace(name)) && !target.neighbour {
		return nil, &loopError{target.String()}
	}

	extensions, err := m.extensions(text)
	if err != nil {
		return nil, err
	}

	over := conn
	how := "without TLS"
	switch offered := offersTLS(extensions); {
	case secure && offered:
		if over, how, err = m.secure(ctx, conn, text, target, policy); err != nil {
			return nil, &tlsTrouble{err}
		}

	case policy.dane != nil:
		return nil, &tlsTrouble{errors.New("the server offers no STARTTLS, which its TLSA records demand (4.7.10)")}
	case policy.enforced():
		return nil, &tlsTrouble{errors.New("the server offers no STARTTLS, which the MTA-STS policy of its domain demands (4.7.10)")}
	case policy.mode == PolicyTesting && !offered:
		m.tested(target, "no STARTTLS")
	}

	if err := nothingMore(text); err != nil {
		return nil, err
	}

	_ = conn.SetDeadline(time.Time{})
	client, err := newClient(&greetedConn{Conn: &replyConn{Conn: over}}, m.hello)
	if err != nil {
		return nil, err
	}

	return &clientSession{client: client, conn: conn, who: target.String() + " " + how}, nil
}

// extensions asks for them; a server that knows no EHLO has none (RFC 5321, section 3.2).
func (m *Direct) extensions(text *textproto.Conn) (string, error) {
	extensions, err := sendHello(text, m.hello)
	var answer *textproto.Error
	if errors.As(err, &answer) && (answer.Code == 500 || answer.Code == 502) {
		return "", nil
	}
	return extensions, err
}

func (m *Direct) secure(ctx context.Context, conn net.Conn, text *textproto.Conn, target mxTarget, policy stsPolicy) (net.Conn, string, error) {
	if err := askTLS(text); err != nil {
		return nil, "", err
	}

	config := m.tls.Clone()
	config.ServerName = target.host
	if policy.dane != nil {
		config.ServerName = policy.dane.names[0]
	}

	if !policy.enforced() {
		config.InsecureSkipVerify = true // opportunistic: against listeners on the way any certificate is better than none
	}

	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		if policy.enforced() {
			err = fmt.Errorf("the MTA-STS policy of its domain demands TLS with a valid certificate (4.7.10): %w", err)
		}
		return nil, "", err
	}

	state := secured.ConnectionState()
	if policy.dane != nil {
		if err := policy.dane.check(state); err != nil {
			return nil, "", err
		}
		return secured, tls.VersionName(state.Version) + " (DANE)", nil
	}

	if policy.mode == PolicyTesting {
		if err := m.checkCertificate(state, target.host); err != nil {
			m.tested(target, err.Error())
		}
	}

	return secured, tls.VersionName(state.Version), nil
}

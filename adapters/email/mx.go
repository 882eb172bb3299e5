package email

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
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
	maxOutgoing   = 25               // sessions at once with all recipients' servers
	maxSessions   = 2                // sessions that one attempt opens
	maxPerMX      = 10               // mails over one session
	attemptLimit  = 30 * time.Minute // one attempt, whatever the servers do
	startingLanes = 2                // sessions at once with one domain, until some mails were taken
	maxLanes      = 5
	defaultMXPort = 25
)

// mxTransport brings mails to the servers of their recipients.
type mxTransport struct {
	domain    string // ours
	hello     string
	port      int
	dialer    Dialer
	dns       *dns.Resolver
	tls       *tls.Config
	own       func() net.Addr
	policies  *stsPolicies
	secureDNS SecureDNS // nil = no DANE
	log       *slog.Logger

	places chan struct{}
	lanes  *lanes
	bursts *bursts
	pools  *domainPools
}

func (a *Adapter) newMX() (*mxTransport, error) {
	if a.options.Dialer == nil {
		return nil, errors.New("email: option Dialer is required with mail.mode = mx")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.options.MXTLS != nil {
		config = a.options.MXTLS.Clone()
	}
	return &mxTransport{
		domain: a.domain, hello: a.options.Hostname, port: a.options.MXPort, dialer: a.options.Dialer, dns: a.dns, tls: config,
		own: a.Addr, secureDNS: a.options.SecureDNS, policies: newSTSPolicies(a.dns, a.options.State, a.options.Policies, a.now, a.log), log: a.log,
		places: make(chan struct{}, maxOutgoing), lanes: newLanes(), bursts: newBursts(a.now), pools: newDomainPools(),
	}, nil
}

// send makes one attempt for the recipients of one domain.
func (m *mxTransport) send(ctx context.Context, mail outgoing) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	if wait := m.bursts.hold(mail.key); wait > 0 {
		return outcome{}, fault.RetryIn(wait, mail.key+" refuses what comes from here by its policy; nothing is sent there for an hour", nil)
	}
	leave, err := m.lanes.enter(ctx, mail.key)
	if err != nil {
		return outcome{}, err
	}
	result, err := m.inPlace(ctx, mail)
	leave(err == nil)
	m.bursts.note(mail.key, result, err)
	return result, classed(mail.key, err)
}

func (m *mxTransport) inPlace(ctx context.Context, mail outgoing) (outcome, error) {
	select {
	case m.places <- struct{}{}:
		defer func() { <-m.places }()
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	pool := m.pools.of(mail.key)
	defer m.pools.done(mail.key)
	if session := pool.take(); session != nil {
		result, err := session.transact(ctx, mail, pool, maxPerMX)
		if err == nil || session.ended || ctx.Err() != nil || !dead(err) {
			return m.told(session, result), err
		}
	}
	return m.anew(ctx, mail, pool)
}

// anew goes through the servers of the domain until one of them answers to the mail.
func (m *mxTransport) anew(ctx context.Context, mail outgoing, pool *sessionPool) (outcome, error) {
	hosts, err := m.mailHosts(ctx, mail.key)
	if err != nil {
		return outcome{}, err
	}
	policy := m.policies.find(ctx, mail.key)
	danes, unreachable := m.danes(ctx, mail.key, hosts)
	if hosts, err = m.permitted(ctx, mail.key, hosts, policy, danes); err != nil {
		return outcome{}, err
	}
	if hosts = slices.DeleteFunc(hosts, func(host string) bool { return unreachable[host] != nil }); len(hosts) == 0 {
		return outcome{}, anyOf(unreachable)
	}
	targets, err := m.targets(ctx, mail.key, hosts)
	if err != nil {
		return outcome{}, err
	}
	var last error
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
			return outcome{}, fault.GiveUp("mail for "+mail.key+" loops: "+loop.Error(), err)
		case err != nil:
			if last = err; refusedByPolicy(err) {
				private++
			}
		default:
			result, err := session.transact(ctx, mail, pool, maxPerMX)
			if err == nil || session.ended || !dead(err) {
				return m.told(session, result), err
			}
			sessions, last = sessions+1, fmt.Errorf("%s: %w", target, err)
		}
		if ctx.Err() != nil || sessions >= maxSessions {
			break
		}
	}
	if private == len(targets) {
		return outcome{}, fault.GiveUp("the mail servers of "+mail.key+" have no public addresses (5.4.4)", last)
	}
	if errors.As(last, new(*fault.Fault)) || errors.As(last, new(*setupError)) {
		return outcome{}, last
	}
	return outcome{}, &setupError{last}
}

func (m *mxTransport) told(session *clientSession, result outcome) outcome {
	if result.text != "" {
		result.text = session.who + ": " + result.text
	}
	return result
}

// danes gives what servers demand by their TLSA records, and which must not be reached now.
func (m *mxTransport) danes(ctx context.Context, domain string, hosts []string) (demands map[string]*danePolicy, unreachable map[string]error) {
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
func (m *mxTransport) permitted(ctx context.Context, domain string, hosts []string, policy stsPolicy, danes map[string]*danePolicy) ([]string, error) {
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
	case policy.mode == stsTesting && len(named) < len(hosts):
		metricTested.Inc()
	}
	return hosts, nil
}

// tested notes what a policy in testing mode would have refused.
func (m *mxTransport) tested(target mxTarget, reason string) {
	metricTested.Inc()
	m.log.Info("the MTA-STS policy, which is in testing mode, is not met", "server", target.String(), "reason", message.Clip(reason, 200))
}

func (m *mxTransport) checkCertificate(state tls.ConnectionState, host string) error {
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

func (m *mxTransport) close() { m.pools.close() }

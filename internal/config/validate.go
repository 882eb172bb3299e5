package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/identity"
)

// validate checks every key and adds one problem for each that cannot work.
func (c *Config) validate(p *problems) {
	c.validateNames(p)
	c.validateApex(p)
	c.validateMetadata(p) // before what names addresses
	c.validateStorage(p)
	c.validateListeners(p)
	c.validateMail(p)
	c.validateWork(p)
	c.validateTrust(p)
	c.validateIssuers(p)
	c.validateLimits(p)
	c.Retention.validate(p, "retention")
	c.validateOperator(p)
	c.validateChat(p)
	c.validateAgents(p)
	c.validateConnectors(p)
	c.validateTargets(p)
	c.validateSecrets(p)
}

func (c *Config) validateNames(p *problems) {
	private := c.Federation.AllowPrivate
	key := "public_url"
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		p.add(key, fmt.Sprintf("%q is not a web address", c.PublicURL), `write one such as "https://example.com"`)
		return
	case u.Path != "":
		p.add(key, fmt.Sprintf("has the path %s, and other servers ask for /.well-known/webfinger at the root of a host, where this server has to answer them", u.Path),
			fmt.Sprintf("give it a host of its own, such as \"%s://agents.%s\", and let the proxy pass that host on whole", u.Scheme, u.Host))
		return
	case u.RawQuery != "" || u.User != nil || u.Fragment != "":
		p.add(key, "has more than scheme, host and port", fmt.Sprintf("write %q", u.Scheme+"://"+u.Host))
		return
	case u.Scheme == "http" && !private:
		p.add(key, fmt.Sprintf("%q cannot be reached by other servers, which want https", c.PublicURL),
			`write "https://your.domain", or federation.allow_private = true for a closed network`)
	}

	// A domain that was taken from a refused public_url would only say the same again.
	if p.written("domain") || u.Scheme == "https" || private {
		c.validateDomain(p)
	}
}

func (c *Config) validateMetadata(p *problems) {
	p.metadata = c.Federation.MetadataAddresses
	for i, one := range p.metadata {
		if !one.IsSingleIP() {
			p.add(element("federation.metadata_addresses", i), fmt.Sprintf("%q is a network", one), `write single addresses such as "169.254.10.1"`)
		}
	}
}

func (c *Config) validateDomain(p *problems) {
	domain, err := identity.ParseDomain(c.Domain)
	host := identity.HostOf(domain)
	_, notLiteral := netip.ParseAddr(strings.Trim(host, "[]"))
	switch private := c.Federation.AllowPrivate; {
	case err != nil || host == "":
		p.add("domain", fmt.Sprintf("%q is not a domain", c.Domain), `write one such as "example.com"`)
	case !private && host != domain:
		p.add("domain", fmt.Sprintf("%q has a port", c.Domain), "write the domain alone, or federation.allow_private = true for a closed network")
	case !private && (notLiteral == nil || !strings.Contains(host, ".")):
		p.add("domain", fmt.Sprintf("%q is not a public domain", c.Domain), "write a full domain, or federation.allow_private = true for a closed network")
	}
}

func (c *Config) validateStorage(p *problems) {
	if c.DataDir == "" {
		p.add("data_dir", "is empty", `write a directory such as "inbox-data"`)
	}

	database := c.DatabaseURL.Reveal()
	if database != "sqlite" && !strings.HasPrefix(database, "postgres://") && !strings.HasPrefix(database, "postgresql://") {
		p.add("database_url", "is neither sqlite nor a PostgreSQL address", `write "sqlite" or "postgres://user:password@host/database"`)
	} else if !readAlike(database) {
		p.add("database_url", "is not an address", "percent-encode special characters in user name and password")
	}

	c.validateDatabase(p)
	c.validateBlobs(p)
	within(p, "shutdown_grace", c.ShutdownGrace, 0, time.Hour)
	within(p, "drain", c.Drain, 0, time.Hour)
}

func (c *Config) validateListeners(p *problems) {
	if path, is := socketPath(c.HTTP.Listen); !is {
		listener(p, "http.listen", c.HTTP.Listen, false)
	} else if !filepath.IsAbs(path) || len(path) > longestSocket {
		p.add("http.listen", fmt.Sprintf("%q is not a socket", c.HTTP.Listen), `write an absolute path of at most 100 bytes such as "unix:/run/inbox/http.sock"`)
	} else if c.HTTP.TLS != "off" {
		p.add("http.listen", "is a socket of this machine, and TLS ends at the proxy in front of it", `write http.tls = "off"`)
	}
	for _, l := range c.optionalListeners() {
		listener(p, l.key, l.address, true)
	}

	c.validateClashes(p)
	oneOf(p, "http.tls", c.HTTP.TLS, "off", "files", "acme")
	files := c.HTTP.CertFile != "" || c.HTTP.KeyFile != ""
	switch {
	case c.HTTP.TLS == "files" && (c.HTTP.CertFile == "" || c.HTTP.KeyFile == ""):
		p.add("http.tls", "files need both http.cert_file and http.key_file", "write both paths")
	case c.HTTP.TLS != "files" && files:
		p.add("http.cert_file", "is not used, because http.tls is "+c.HTTP.TLS, `write http.tls = "files" or remove the files`)
	}

	c.validateACME(p)
	between(p, "http.max_body_bytes", c.HTTP.MaxBodyBytes, 64<<10, 1<<30)
	if most := c.HTTP.MaxBytesInFlight; most != 0 && most < 2*c.HTTP.MaxBodyBytes {
		p.add("http.max_bytes_in_flight", fmt.Sprintf("%v is less than two bodies of http.max_body_bytes", most), fmt.Sprintf("write at least %q", 2*c.HTTP.MaxBodyBytes))
	}

	between(p, "smtp.max_message_bytes", c.SMTP.MaxMessageBytes, 64<<10, 1<<30)
	between(p, "smtp.max_connections", c.SMTP.MaxConnections, 1, 100_000)
	between(p, "smtp.connections_per_address", c.SMTP.ConnectionsPerAddress, 1, 100_000)
	between(p, "smtp.connections_per_minute", c.SMTP.ConnectionsPerMinute, 1, 1_000_000)
	between(p, "smtp.mails_per_minute", c.SMTP.MailsPerMinute, 1, 1_000_000)

	if _, err := identity.ParseDomain(c.SMTP.Hostname); c.SMTP.Listen != "" && (err != nil || strings.Contains(c.SMTP.Hostname, ":")) {
		p.add("smtp.hostname", fmt.Sprintf("%q is not a host name", c.SMTP.Hostname), `write one such as "mail.example.com"`)
	}

	for _, host := range c.A2A.WebhookHosts {
		if u, err := url.Parse("https://" + host + "/"); err != nil || u.Hostname() == "" || u.Host != host {
			p.add("a2a.webhook_hosts", fmt.Sprintf("%q is neither a host nor host:port", host), `write one such as "hooks.internal:8443"`)
		}
	}

	if c.DNS.Resolver != "" {
		listener(p, "dns.resolver", c.DNS.Resolver, false)
	}
}

type address struct{ key, address string }

func (c *Config) optionalListeners() []address {
	list := []address{{"smtp.listen", c.SMTP.Listen}, {"a2a.grpc_listen", c.A2A.GRPCListen}, {"admin.listen", c.Admin.Listen}}
	if c.HTTP.TLS == "acme" {
		list = append(list, address{"acme.http_listen", c.ACME.HTTPListen})
	}
	return list
}

// validateClashes finds one address written for two listeners; port 0 never clashes.
func (c *Config) validateClashes(p *problems) {
	taken := map[string]string{c.HTTP.Listen: "http.listen"}
	for _, l := range c.optionalListeners() {
		if l.address == "" || strings.HasSuffix(l.address, ":0") {
			continue
		}
		if other := taken[l.address]; other != "" {
			p.add(l.key, fmt.Sprintf("%s is the address of %s, too", l.address, other), "write another port")
		}
		taken[l.address] = l.key
	}
}

var selector = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func (c *Config) validateMail(p *problems) {
	c.validateSealers(p)
	oneOf(p, "mail.mode", c.Mail.Mode, "capture", "smarthost", "mx")

	if c.Mail.Mode == "smarthost" || c.Mail.Smarthost != "" {
		u, err := url.Parse(c.Mail.Smarthost.Reveal())
		if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
			p.add("mail.smarthost", "is not the address of a mail relay", `write "smtp://user:password@host:587" or "smtps://user:password@host:465"`)
		}
	}

	if endpoint, err := netip.ParseAddrPort(c.DNS.Resolver); c.Mail.DANE && (err != nil || !endpoint.Addr().Unmap().IsLoopback()) {
		p.add("mail.dane", "believes only a validating resolver on this machine", `write dns.resolver = "127.0.0.1:53" where such a one listens, or mail.dane = false`)
	}

	between(p, "mail.mx_port", c.Mail.MXPort, 1, 65535)
	between(p, "mail.mta_sts_port", c.Mail.MTASTSPort, 1, 65535)
	between(p, "mail.quote_lines", c.Mail.QuoteLines, 0, 30)
	between(p, "mail.domain_rate", c.Mail.DomainRate, 0, 100_000)
	oneOf(p, "mail.mta_sts", c.Mail.MTASTS, "none", "testing", "enforce")
	oneOf(p, "mail.reply_to", c.Mail.ReplyTo, "organization", "signed", "never")

	if name := c.Mail.DKIMEd25519Selector; name != "" && (!selector.MatchString(name) || name == c.Mail.DKIMSelector) {
		p.add("mail.dkim_ed25519_selector", fmt.Sprintf("%q is not a part of a DNS name, or that of the other key", name), "write letters, digits and hyphens")
	}
	if _, err := mail.ParseAddress(c.Mail.Reports); err != nil && c.Mail.Reports != "" {
		p.add("mail.reports", fmt.Sprintf("%q is not an address", c.Mail.Reports), `write "postmaster@example.com"`)
	}
	if !selector.MatchString(c.Mail.DKIMSelector) {
		p.add("mail.dkim_selector", fmt.Sprintf("%q is not a part of a DNS name", c.Mail.DKIMSelector), "write letters, digits and hyphens")
	}

	schedule(p, "mail.retry", c.Mail.Retry)
	schedule(p, "federation.retry", c.Federation.Retry)
	between(p, "federation.host_concurrency", c.Federation.HostConcurrency, 1, 10_000)
	between(p, "federation.host_rate", c.Federation.HostRate, 0, 10_000)
	between(p, "federation.post_length", c.Federation.PostLength, 200, 1_000_000)
}

func (c *Config) validateWork(p *problems) {
	oneOf(p, "federation.mode", c.Federation.Mode, "open", "allowlist")
	oneOf(p, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(p, "log.format", c.Log.Format, "text", "json")
	c.Telemetry.validate(p)
	within(p, "queue.lease", c.Queue.Lease, time.Second, 10*time.Minute)
	between(p, "a2a.caller_concurrency", c.A2A.CallerConcurrency, 1, 100_000)
	between(p, "a2a.max_request_bytes", c.A2A.MaxRequestBytes, 64<<10, 256<<20)
	between(p, "queue.turn_concurrency", c.Queue.TurnConcurrency, 1, 10_000)
	between(p, "queue.delivery_concurrency", c.Queue.DeliveryConcurrency, 1, 10_000)
}

func (t Telemetry) validate(p *problems) {
	if t.OTLPEndpoint != "" {
		u, err := url.Parse(t.OTLPEndpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			p.add("telemetry.otlp_endpoint", "is not the address of an OTLP/HTTP receiver", `write one such as "http://localhost:4318"`)
		}
	}
	if !(t.Sample >= 0 && t.Sample <= 1) {
		p.add("telemetry.sample", fmt.Sprintf("%g is not between 0 and 1", t.Sample), "write a share such as 0.1")
	}
}

func listener(p *problems, key, text string, optional bool) {
	if text == "" && optional {
		return
	}
	_, port, err := net.SplitHostPort(text)
	if number, bad := strconv.Atoi(port); err != nil || bad != nil || number < 0 || number > 65535 {
		p.add(key, fmt.Sprintf("%q is not host:port", text), `write one such as "127.0.0.1:8080"`)
	}
}

// checkLocal keeps development mode, in which private addresses are allowed, away from other machines.
func (c *Config) checkLocal(p *problems) {
	const remedy = "write a configuration file, or set INBOX_FEDERATION_ALLOW_PRIVATE=false to configure by environment alone"
	for _, l := range append(c.optionalListeners(), address{"http.listen", c.HTTP.Listen}) {
		if _, socket := socketPath(l.address); socket {
			continue
		}
		if host, _, err := net.SplitHostPort(l.address); err == nil && !isLocal(host) {
			p.add(l.key, "without a configuration file the server listens on loopback only", remedy)
		}
	}

	for key, host := range map[string]string{"public_url": domainOf(c.PublicURL), "domain": c.Domain} {
		if host != "" && !isLocal(identity.HostOf(host)) {
			p.add(key, "is not local, and without a configuration file the server is in development mode", remedy)
		}
	}
}

// longestSocket is what every system accepts as the path of a socket.
const longestSocket = 100

// socketPath returns the path of a listener that is a socket of this machine.
func socketPath(listen string) (path string, is bool) { return strings.CutPrefix(listen, "unix:") }

// Reach returns network and address by which this machine reaches a listener.
func Reach(listen string) (network, address string) {
	if path, is := socketPath(listen); is {
		return "unix", path
	}
	return "tcp", Dialable(listen)
}

// Dialable turns the address of a listener on all interfaces into one that can be dialled on this machine; others stay as they are.
func Dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return listen
}

func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".test")
}

func oneOf(p *problems, key, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	remedy := "write " + strings.Join(allowed, ", ")
	if best := nearest(value, allowed); best != "" {
		remedy = fmt.Sprintf("did you mean %q?", best)
	}
	p.add(key, fmt.Sprintf("%q is unknown", value), remedy)
}

func within(p *problems, key string, value, low, high time.Duration) {
	if value < low || value > high {
		p.add(key, fmt.Sprintf("%q is out of range", shortDuration(value)), fmt.Sprintf("write %q to %q", shortDuration(low), shortDuration(high)))
	}
}

func between[T int | Size](p *problems, key string, value, low, high T) {
	if value < low || value > high {
		p.add(key, fmt.Sprintf("%v is out of range", value), fmt.Sprintf("write %v to %v", low, high))
	}
}

const maxSchedule = 100

func schedule(p *problems, key string, waits []time.Duration) {
	if len(waits) == 0 || len(waits) > maxSchedule {
		p.add(key, fmt.Sprintf("has %d waiting times", len(waits)), fmt.Sprintf("write 1 to %d", maxSchedule))
	}
	for i, wait := range waits {
		within(p, element(key, i), wait, time.Millisecond, 30*24*time.Hour)
	}
}

func (c *Config) validateSealers(p *problems) {
	for i, sealer := range c.Mail.ARCSealers {
		domain, err := identity.ParseDomain(sealer)
		if err != nil {
			p.add(element("mail.arc_sealers", i), fmt.Sprintf("%q is not a domain", sealer), `write one such as "lists.example.org"`)
			continue
		}
		c.Mail.ARCSealers[i] = domain
	}
}

var issuerAlgorithms = []string{"EdDSA", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}

// validateIssuers checks the issuers of access tokens.
func (c *Config) validateIssuers(p *problems) {
	seen := map[string]bool{}
	for i := range c.A2A.Issuers {
		issuer, key := &c.A2A.Issuers[i], element("a2a.issuers", i)
		if seen[issuer.Issuer] && issuer.Issuer != "" {
			p.add(key+".issuer", "is a duplicate", "write one table for each issuer")
		}
		seen[issuer.Issuer] = true
		issuer.validate(p, key, c.Federation.AllowPrivate)
	}
}

func (i *Issuer) validate(p *problems, key string, private bool) {
	if u, ok := issuerURL(i.Issuer); !ok || u.Scheme == "http" && !private {
		p.add(key+".issuer", fmt.Sprintf("%q is not the address of an issuer", i.Issuer), `write the value of its iss claim, such as "https://login.example.com"`)
	}

	switch {
	case i.JWKSURL == "" && i.Discovery == "":
		p.add(key+".jwks_url", "is missing, so the keys of the issuer are not known", "write jwks_url or discovery")
	case i.JWKSURL != "" && i.Discovery != "":
		p.add(key+".discovery", "does not go with jwks_url", "write one of them")
	}

	for name, address := range map[string]string{"jwks_url": i.JWKSURL, "discovery": i.Discovery} {
		u, ok := issuerURL(address)
		if address != "" && (!ok || u.Scheme == "http" && !private) {
			p.add(key+"."+name, fmt.Sprintf("%q is not an address of a document", address), `write an https:// address; http only with federation.allow_private`)
		}
	}

	for _, alg := range i.Algs {
		if !slices.Contains(issuerAlgorithms, alg) {
			p.add(key+".algs", fmt.Sprintf("%q is not accepted", alg), "write some of "+strings.Join(issuerAlgorithms, ", "))
		}
	}

	if slices.Contains(i.Audiences, "") {
		p.add(key+".audiences", "an entry is empty", "remove it")
	}
	if i.Method != "" && i.Method != "a2a-oauth" && i.Method != "a2a-jwt" && !strings.HasPrefix(i.Method, "urn:") {
		p.add(key+".method", fmt.Sprintf("%q is not known", i.Method), `write "a2a-oauth", "a2a-jwt" or a URN of your own`)
	}
}

// issuerURL reads an address without user and fragment: the latter separates issuer and subject in evidence.
func issuerURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && u.Host != "" && u.User == nil && u.Fragment == "" && !strings.ContainsAny(text, "# ") &&
		(u.Scheme == "https" || u.Scheme == "http")
}

// Bounds of what a chat begins with: a reader sees it at a glance.
const (
	maxGreeting    = 2000 // bytes
	maxSuggestions = 6
	maxSuggestion  = 200 // bytes
)

func (a *Agent) validateOpening(p *problems, key string) {
	if len(a.Greeting) > maxGreeting {
		p.add(key+".greeting", fmt.Sprintf("has %d bytes", len(a.Greeting)), fmt.Sprintf("write at most %d", maxGreeting))
	}
	if len(a.Suggestions) > maxSuggestions {
		p.add(key+".suggestions", fmt.Sprintf("has %d questions", len(a.Suggestions)), fmt.Sprintf("write at most %d", maxSuggestions))
	}
	for _, question := range a.Suggestions {
		if strings.TrimSpace(question) == "" || len(question) > maxSuggestion {
			p.add(key+".suggestions", fmt.Sprintf("%q is empty or too long", question), fmt.Sprintf("write a question of at most %d bytes", maxSuggestion))
		}
	}
}

// maxApprovers bounds the approvers of one agent: each of them is written to for every approval.
const maxApprovers = 20

func (a *Agent) validateApprovals(p *problems, key string, c *Config) {
	oneOf(p, key+".approve_replies", a.ApproveReplies, "never", "always", "unverified")
	oneOf(p, key+".show_tools", a.ShowTools, "none", "names", "full")
	if len(a.Approvers) > maxApprovers {
		p.add(key+".approvers", fmt.Sprintf("has %d addresses", len(a.Approvers)), fmt.Sprintf("write at most %d", maxApprovers))
	}

	seen := map[string]bool{}
	for _, text := range a.Approvers {
		address, err := identity.ParseAddress(text)
		switch {
		case err != nil:
			p.add(key+".approvers", fmt.Sprintf("%q is not an address", text), `write "@owner@social.example" or "owner@example.org"`)
		case seen[strings.ToLower(address.String())]:
			p.add(key+".approvers", fmt.Sprintf("%q is written twice", text), "remove one of them")
		case address.Domain == c.Domain || identity.HostOf(address.Domain) == identity.HostOf(c.Domain) && !strings.HasPrefix(text, "@"):
			p.add(key+".approvers", fmt.Sprintf("%q is an address of this server, where only agents live", text), "write the address of a person elsewhere")
		case !strings.HasPrefix(text, "@") && c.SMTP.Listen == "":
			p.add(key+".approvers", fmt.Sprintf("%q is a mailbox, and email is off", text), "set smtp.listen, or write an address of the fediverse: @user@domain")
		}
		seen[strings.ToLower(address.String())] = true
	}
	a.validateApproverMethods(p, key)
}

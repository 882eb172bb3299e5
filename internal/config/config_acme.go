package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// LetsEncrypt is the directory of the usual certificate authority.
const LetsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// ACME is where certificates come from with `http.tls = "acme"`. To use an authority you must accept its terms.
type ACME struct {
	// Address of the authority's directory (RFC 8555).
	Directory string `toml:"directory"`
	// Mail address to which the authority writes about its certificates.
	Email string `toml:"email" default:"operator.contact, where that is a mail address"`
	// PEM file with the roots of your own authority; empty = those of the operating system.
	RootsFile string `toml:"roots_file"`
	// Address of a plain HTTP listener, `host:port`. It answers the authority (http-01) and sends browsers to https. `off` =
	// none; then the authority must reach `http.listen` as port 443 (tls-alpn-01).
	HTTPListen string `toml:"http_listen" default:"port 80 of the host of http.listen"`
	// How often the server checks whether a certificate is due. It renews one when a third of its life is left.
	CheckEvery time.Duration `toml:"check_every"`
	// Names beside those that the server needs anyway: `domain`, the host of `public_url`, and with mail `smtp.hostname` and
	// `mta-sts.` before the domain.
	Names []string `toml:"names"`
	// At most one table.
	DNS ACMEDNS `toml:"dns"`
}

// ACMEDNS lets the certificate authority check the DNS instead of connecting to this server (dns-01): for a server that it
// cannot reach on port 80 or 443, and for wildcards in `acme.names`. The server sets the record `_acme-challenge` of each name
// and removes it afterwards. At most one table.
type ACMEDNS struct {
	// Who has the zone: `rfc2136` (BIND, Knot, PowerDNS and others that take dynamic updates), `cloudflare`, `desec`, `gandi`
	// or `acmedns` (a CNAME of `_acme-challenge` leads to it, from a zone of any provider). Empty = the authority connects to
	// the listeners.
	Provider string `toml:"provider"`
	// `rfc2136`: primary name server, `host:port`. `acmedns`: address of the service, `https://…`.
	Server string `toml:"server"`
	// `rfc2136`: name of the TSIG key.
	KeyName string `toml:"key_name"`
	// `rfc2136`: algorithm of the TSIG key.
	KeyAlgorithm string `toml:"key_algorithm" default:"hmac-sha256 with rfc2136"`
	// `acmedns`: user name.
	Username string `toml:"username"`
	// `acmedns`: the subdomain that the service gave.
	Subdomain string `toml:"subdomain"`
	// API token of the provider, TSIG key as base64 (`rfc2136`) or password (`acmedns`). Let it change this zone and nothing
	// else.
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
}

// PublicHost is the host of public_url, without a port.
func (c *Config) PublicHost() string {
	public, err := url.Parse(c.PublicURL)
	if err != nil {
		return ""
	}
	return public.Hostname()
}

// Values of Apex.
const (
	ApexHere      = "here"
	ApexElsewhere = "elsewhere"
)

// validateApex refuses a domain whose only host is served elsewhere.
func (c *Config) validateApex(p *problems) {
	oneOf(p, "apex", c.Apex, ApexHere, ApexElsewhere)
	if c.Apex == ApexElsewhere && strings.EqualFold(identity.HostOf(c.Domain), c.PublicHost()) {
		p.add("apex", fmt.Sprintf("%s is the host of public_url and of domain, so it cannot be served elsewhere", c.PublicHost()),
			`write public_url with another host, such as "https://agents.`+identity.HostOf(c.Domain)+`", or remove the line`)
	}
}

// PublicAuthority is the host of public_url, with its port if it names one.
func (c *Config) PublicAuthority() string {
	public, err := url.Parse(c.PublicURL)
	if err != nil {
		return ""
	}
	return public.Host
}

// CertificateNames are the hosts for which http.tls = "acme" obtains certificates, the host of public_url first.
func (c *Config) CertificateNames() []string {
	names := []string{c.PublicHost()}
	if c.Apex != ApexElsewhere {
		names = append(names, identity.HostOf(c.Domain))
	}
	if c.SMTP.Listen != "" {
		if !c.SharesMailHost {
			names = append(names, c.SMTP.Hostname)
		}
		if c.Mail.MTASTS != "none" {
			names = append(names, "mta-sts."+identity.HostOf(c.Domain))
		}
	}

	var distinct []string
	for _, name := range append(names, c.ACME.Names...) {
		if name = strings.ToLower(strings.TrimSuffix(name, ".")); name != "" && !slices.Contains(distinct, name) {
			distinct = append(distinct, name)
		}
	}
	return distinct
}

func (c *Config) deriveACME(found *problems) {
	readSecret(&c.ACME.DNS.Token, c.ACME.DNS.TokenFile, "acme.dns.token_file", found)
	if c.HTTP.TLS != "acme" {
		return
	}
	if contact := strings.TrimPrefix(c.Operator.Contact, "@"); c.ACME.Email == "" && strings.Count(contact, "@") == 1 && contact == c.Operator.Contact {
		c.ACME.Email = contact
	}

	if c.ACME.DNS.Provider == "rfc2136" && c.ACME.DNS.KeyAlgorithm == "" {
		c.ACME.DNS.KeyAlgorithm = "hmac-sha256"
	}

	switch host, _, err := net.SplitHostPort(c.HTTP.Listen); {
	case strings.EqualFold(c.ACME.HTTPListen, "off"):
		c.ACME.HTTPListen = ""
	case c.ACME.HTTPListen == "" && err == nil:
		c.ACME.HTTPListen = net.JoinHostPort(host, "80")
	}
}

// ACMEProviders are the values of acme.dns.provider.
func ACMEProviders() []string { return []string{"acmedns", "cloudflare", "desec", "gandi", "rfc2136"} }

func (d *ACMEDNS) validate(p *problems) {
	if d.Provider == "" {
		if *d != (ACMEDNS{}) {
			p.add("acme.dns.provider", "is missing, so the rest of [acme.dns] has no effect", "write one of "+strings.Join(ACMEProviders(), ", "))
		}
		return
	}
	if oneOf(p, "acme.dns.provider", d.Provider, ACMEProviders()...); !slices.Contains(ACMEProviders(), d.Provider) {
		return
	}

	missing := func(key, what, remedy string) { p.add("acme.dns."+key, "is missing, "+what, remedy) }
	if d.Token == "" && d.TokenFile == "" {
		missing("token", "and "+d.Provider+" changes no zone without it", "write token_file, or set INBOX_ACME_DNS_TOKEN")
	}
	switch d.Provider {
	case "rfc2136":
		if _, port, err := net.SplitHostPort(d.Server); err != nil || port == "" {
			p.add("acme.dns.server", fmt.Sprintf("%q is not host:port", d.Server), `write the primary name server of the zone, such as "ns1.example.org:53"`)
		}
		if d.KeyName == "" {
			missing("key_name", "so the name server could not tell whose update it is", "write the name of the TSIG key")
		}
		if raw, err := base64.StdEncoding.DecodeString(string(d.Token)); d.Token != "" && (err != nil || len(raw) == 0) {
			p.add("acme.dns.token", "is not a TSIG key in base64", "copy the secret of the key as the name server's configuration has it")
		}
	case "acmedns":
		if u, err := url.Parse(d.Server); err != nil || u.Scheme != "https" || u.Host == "" {
			p.add("acme.dns.server", fmt.Sprintf("%q is not an https address", d.Server), "write the address of the service's API")
		}
		if d.Username == "" || d.Subdomain == "" {
			missing("username", "or subdomain is", "write what the service answered to the registration")
		}
	}
}

func (c *Config) validateACME(p *problems) {
	if c.HTTP.TLS != "acme" {
		return
	}
	if u, err := url.Parse(c.ACME.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
		p.add("acme.directory", fmt.Sprintf("%q is not an https address", c.ACME.Directory), "write "+LetsEncrypt)
	}
	if !strings.HasPrefix(c.PublicURL, "https://") {
		p.add("public_url", c.PublicURL+" is not https, which http.tls = \"acme\" serves", "write https://")
	}
	if _, port, err := net.SplitHostPort(c.HTTP.Listen); err == nil && port == "0" {
		p.add("http.listen", "port 0 changes at every start, and the certificate authority comes to this listener", "write port 443")
	}

	c.ACME.DNS.validate(p)
	if c.ACME.CheckEvery < 100*time.Millisecond || c.ACME.CheckEvery > 24*time.Hour {
		p.add("acme.check_every", c.ACME.CheckEvery.String()+" is not between 100ms and 24h", `write "10m"`)
	}
	for _, name := range c.CertificateNames() {
		plain := name
		if c.ACME.DNS.Provider != "" {
			plain = strings.TrimPrefix(name, "*.") // dns-01 is the proof for wildcards (RFC 8555, section 7.1.3)
		} else if strings.HasPrefix(name, "*.") {
			p.add("acme.names", fmt.Sprintf("an authority issues a certificate for %q only by dns-01", name), "write the single names, or set acme.dns.provider")
			continue
		}
		if net.ParseIP(name) != nil || !strings.Contains(plain, ".") || strings.Contains(plain, "*") || identity.HostOf(plain) != plain {
			p.add("http.tls", fmt.Sprintf("authorities issue no certificate for %q", name), "write a public name in domain, public_url, smtp.hostname and acme.names")
		} else if _, err := identity.ParseDomain(plain); err != nil {
			p.add("http.tls", fmt.Sprintf("%q is not a host name", name), "correct domain, public_url, smtp.hostname or acme.names")
		}
	}
}

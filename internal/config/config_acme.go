package config

import (
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

// ACME says where certificates come from with http.tls = "acme". Using an authority means to accept its terms.
type ACME struct {
	// Address of the authority's directory (RFC 8555).
	Directory string `toml:"directory"`
	// Mail address to which the authority writes about its certificates.
	Email string `toml:"email" default:"operator.contact, where that is a mail address"`
	// PEM file with the roots of an authority of your own; empty = those of the operating system.
	RootsFile string `toml:"roots_file"`
	// Address of a listener for plain HTTP, `host:port`: it answers the authority (http-01) and sends browsers to https. `off` =
	// none; then the authority comes to `http.listen` alone (tls-alpn-01), which it must reach as port 443.
	HTTPListen string `toml:"http_listen" default:"port 80 of the host of http.listen"`
	// How often the server looks whether a certificate is due: it is renewed when a third of its life is left.
	CheckEvery time.Duration `toml:"check_every"`
	// Names beside those that the server needs: `domain`, the host of `public_url`, and with mail `smtp.hostname` and
	// `mta-sts.` before the domain.
	Names []string `toml:"names"`
}

// PublicHost is the host of public_url, without a port.
func (c *Config) PublicHost() string {
	public, err := url.Parse(c.PublicURL)
	if err != nil {
		return ""
	}
	return public.Hostname()
}

// CertificateNames are the hosts for which http.tls = "acme" obtains certificates, the host of public_url first.
func (c *Config) CertificateNames() []string {
	names := []string{c.PublicHost(), identity.HostOf(c.Domain)}
	if c.SMTP.Listen != "" {
		names = append(names, c.SMTP.Hostname)
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

func (c *Config) deriveACME() {
	if c.HTTP.TLS != "acme" {
		return
	}
	if contact := strings.TrimPrefix(c.Operator.Contact, "@"); c.ACME.Email == "" && strings.Count(contact, "@") == 1 && contact == c.Operator.Contact {
		c.ACME.Email = contact
	}

	switch host, _, err := net.SplitHostPort(c.HTTP.Listen); {
	case strings.EqualFold(c.ACME.HTTPListen, "off"):
		c.ACME.HTTPListen = ""
	case c.ACME.HTTPListen == "" && err == nil:
		c.ACME.HTTPListen = net.JoinHostPort(host, "80")
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

	if c.ACME.CheckEvery < 100*time.Millisecond || c.ACME.CheckEvery > 24*time.Hour {
		p.add("acme.check_every", c.ACME.CheckEvery.String()+" is not between 100ms and 24h", `write "10m"`)
	}
	for _, name := range c.CertificateNames() {
		if net.ParseIP(name) != nil || !strings.Contains(name, ".") || strings.Contains(name, "*") || identity.HostOf(name) != name {
			p.add("http.tls", fmt.Sprintf("an authority gives no certificate for %q", name), "write a public name in domain, public_url, smtp.hostname and acme.names")
		} else if _, err := identity.ParseDomain(name); err != nil {
			p.add("http.tls", fmt.Sprintf("%q is not a host name", name), "correct domain, public_url, smtp.hostname or acme.names")
		}
	}
}

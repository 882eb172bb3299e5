package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Admin is the console and the operator API.
type Admin struct {
	// A listener for the console, the operator API and `/metrics` alone, `host:port`; empty = they are at `http.listen`. It has
	// TLS where `http.tls` is not `off`, unless it is on loopback. Everyone who reaches it at an address or a name of the server
	// reads the metrics; the console and the API need an operator's token or a login.
	Listen string `toml:"listen"`
	// Where browsers reach the console, without a path, such as `https://inbox.internal:9443`. The login service sends them
	// back there.
	URL string `toml:"url" default:"public_url; with admin.listen its address"`
	// After so long without a request a browser must sign in again. At least 1m.
	SessionIdle time.Duration `toml:"session_idle"`
	// After so long it must sign in again in any case. At least `session_idle`.
	SessionLifetime time.Duration `toml:"session_lifetime"`

	OIDC AdminOIDC `toml:"oidc"`
}

// AdminOIDC lets operators sign in at a login service (OpenID Connect), beside tokens. Register
// `<admin.url>/console/login/return` there. If several lists name a person, the largest role counts; a person in no list is not
// let in.
type AdminOIDC struct {
	// Name on the button.
	Name string `toml:"name" default:"host of issuer"`
	// Issuer URL of the service, below which it publishes `/.well-known/openid-configuration`; empty = tokens only.
	Issuer string `toml:"issuer"`
	// Client id that the service gave you.
	ClientID string `toml:"client_id"`
	// Client secret that the service gave you; empty for a public client.
	ClientSecret Secret `toml:"client_secret"`
	// File with that secret instead; a line end after it is cut off.
	ClientSecretFile string `toml:"client_secret_file"`
	// Scopes that the server asks for: `openid`, and what the service needs to include addresses and groups.
	Scopes []string `toml:"scopes"`
	// Claim of the ID token with the names of a person's groups.
	GroupsClaim string `toml:"groups_claim"`
	// Who may do everything: mail addresses that the service says it has verified, or `group:NAME`.
	Admins []string `toml:"admins"`
	// Who may do the daily work.
	Workers []string `toml:"workers"`
	// Who may only look.
	Readers []string `toml:"readers"`
}

const memberGroup = "group:"

// IsLocal reports whether only this machine reaches the listener.
func (a Admin) IsLocal() bool {
	host, _, err := net.SplitHostPort(a.Listen)
	return err == nil && isLocal(host)
}

// ConsoleURL is where browsers reach the console.
func (c *Config) ConsoleURL() string {
	switch {
	case c.Admin.Listen == "", c.HostedBy != "":
		return c.PublicURL
	case c.Admin.URL != "":
		return c.Admin.URL
	}
	scheme := "https"
	if c.HTTP.TLS == "off" || c.Admin.IsLocal() {
		scheme = "http"
	}
	return scheme + "://" + c.Admin.Listen
}

func (c *Config) deriveAdmin(found *problems) {
	c.Admin.URL = strings.TrimSuffix(c.Admin.URL, "/")
	oidc := &c.Admin.OIDC
	readSecret(&oidc.ClientSecret, oidc.ClientSecretFile, "admin.oidc.client_secret_file", found)
	if issuer, err := url.Parse(oidc.Issuer); oidc.Name == "" && err == nil {
		oidc.Name = issuer.Hostname()
	}
}

func (c *Config) validateAdmin(p *problems) {
	if c.Admin.SessionIdle < time.Minute {
		p.add("admin.session_idle", fmt.Sprintf("%s is too short to work with", c.Admin.SessionIdle), "write at least 1m")
	}
	if c.Admin.SessionLifetime < c.Admin.SessionIdle {
		p.add("admin.session_lifetime", "is shorter than session_idle", "write at least as much")
	}
	if u, ok := plainURL(c.Admin.URL); c.Admin.URL != "" && (!ok || u.Path != "") {
		p.add("admin.url", fmt.Sprintf("%q is not an address without a path", c.Admin.URL), `write one such as "https://inbox.internal:9443"`)
	}
	c.Admin.OIDC.validate(p, c.Federation.AllowPrivate)
}

func (o *AdminOIDC) validate(p *problems, private bool) {
	const key = "admin.oidc"
	lists := map[string][]string{"admins": o.Admins, "workers": o.Workers, "readers": o.Readers}
	if o.Issuer == "" {
		if o.ClientID != "" || len(o.Admins)+len(o.Workers)+len(o.Readers) > 0 {
			p.add(key+".issuer", "is missing", `write the issuer URL of the login service such as "https://login.example.com"`)
		}
		return
	}

	if u, ok := plainURL(o.Issuer); !ok || u.Scheme == "http" && !private {
		p.add(key+".issuer", fmt.Sprintf("%q is not the address of a login service", o.Issuer), `write its issuer URL such as "https://login.example.com"; http only with federation.allow_private`)
	}
	if o.ClientID == "" {
		p.add(key+".client_id", "is missing", "register the server at the login service and write the id that it gives")
	}
	if !slices.Contains(o.Scopes, "openid") {
		p.add(key+".scopes", `lack "openid", without which the service does not say who logged in`, `write scopes = ["openid", "email"]`)
	}
	words(p, key+".scopes", o.Scopes)

	if len(o.Admins)+len(o.Workers)+len(o.Readers) == 0 {
		p.add(key+".admins", "is empty, as workers and readers are, so the login admits no one", `write who may do what, such as admins = ["me@example.com", "group:ops"]`)
	}
	for name, list := range lists {
		for i, entry := range list {
			if group, is := strings.CutPrefix(entry, memberGroup); is && group != "" {
				continue
			}
			if address, err := mail.ParseAddress(entry); err != nil || address.Address != entry {
				p.add(element(key+"."+name, i), fmt.Sprintf("%q is neither a mail address nor a group", entry), `write "me@example.com" or "group:ops"`)
			}
		}
	}
}

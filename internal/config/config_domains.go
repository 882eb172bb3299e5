package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"inbox/identity"
)

// Domain is a further domain of the server. It has addresses, agents, keys, data and certificates of its own. It shares the
// listeners and all other settings with the domain at the top of the file. One table per further domain;
// [domains.md](domains.md) explains them.
type Domain struct {
	// Part of the addresses of its agents after the last @.
	Name string `toml:"name" default:"none; required"`
	// Where HTTP is reached from outside for this domain, without a path. The server tells its domains apart by the host, so
	// each needs its own.
	PublicURL string `toml:"public_url" default:"public_url at the top, with name as its host"`
	// Who serves HTTP at `name` itself, as `apex` at the top.
	Apex string `toml:"apex" default:"here"`
	// PEM file with the certificate chain of this domain, for `http.tls = "files"`.
	CertFile string `toml:"cert_file" default:"http.cert_file, which then needs the names of this domain too"`
	// PEM file with the private key of `cert_file`.
	KeyFile string `toml:"key_file"`
	// Name of the mail server of this domain: its MX record, and its name in Received headers. Greetings say `smtp.hostname`.
	MailHost string `toml:"mail_host" default:"smtp.hostname"`
	// PEM file with an existing RSA key for DKIM; empty = this domain gets one of its own.
	DKIMKeyFile string `toml:"dkim_key_file"`
	// Who is responsible for this domain, as `operator.contact`.
	Contact string `toml:"contact" default:"operator.contact"`
}

// Everybody returns the agents of all domains, those of the domain at the top first.
func (c *Config) Everybody() []Agent {
	all := slices.Clone(c.Agents)
	for _, hosted := range c.Hosted {
		all = append(all, hosted.Agents...)
	}
	return all
}

// WithDomain returns the settings of one domain of the server; false when it has none of that name.
func (c *Config) WithDomain(name string) (*Config, bool) {
	if domain, err := identity.ParseDomain(name); err == nil {
		name = domain
	}
	for _, one := range append([]*Config{c}, c.Hosted...) {
		if one.Domain == name {
			return one, true
		}
	}
	return nil, false
}

// WebHosts are the hosts at which the domain is reached by HTTP, without ports.
func (c *Config) WebHosts() []string {
	hosts := []string{strings.ToLower(c.PublicHost())}
	for _, host := range []string{identity.HostOf(c.Domain), "mta-sts." + identity.HostOf(c.Domain)} {
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// splitDomains takes the agents of the further domains out of c and returns the settings of those domains as they are before anything is
// derived. The settings at the top know their own domain already.
func (c *Config) splitDomains(found *problems) []*Config {
	if len(c.Domains) == 0 {
		for i := range c.Agents {
			if at := c.Agents[i].Domain; at != "" && !sameDomain(at, c.Domain) {
				found.add(element("agents", i)+".domain", fmt.Sprintf("%q is no domain of this server", at), "write a table [[domains]] for it, or remove the line")
			}
		}
		return nil
	}

	all := c.Agents
	found.domains, found.agents = map[string]int{}, map[string][]int{}
	hosted := make([]*Config, 0, len(c.Domains))
	for i, domain := range c.Domains {
		name, err := identity.ParseDomain(domain.Name)
		if _, taken := found.domains[name]; err != nil || name == "" || taken || name == c.Domain {
			found.add(element("domains", i)+".name", fmt.Sprintf("%q is not a domain, or is there already", domain.Name), "write another domain, one for each table")
			continue
		}

		found.domains[name] = i
		one := *c
		copyLists(reflect.ValueOf(&one).Elem())
		one.Domain, one.HostedBy, one.Domains, one.Agents = name, c.Domain, nil, nil
		one.Connectors, one.Targets, one.ACME.Names = nil, nil, nil
		one.A2A.GRPCListen, one.A2A.GRPCAddress, one.A2A.DefaultAgent = "", "", ""
		hosted = append(hosted, &one)
	}

	c.Agents = nil
	for i, agent := range all {
		home := c
		if agent.Domain != "" && !sameDomain(agent.Domain, c.Domain) {
			at := slices.IndexFunc(hosted, func(one *Config) bool { return sameDomain(agent.Domain, one.Domain) })
			if at < 0 {
				found.add(element("agents", i)+".domain", fmt.Sprintf("%q is no domain of this server", agent.Domain), "write the name of one of [[domains]], or add a table for it")
				continue
			}
			home = hosted[at]
		}
		home.Agents = append(home.Agents, agent)
		found.agents[home.Domain] = append(found.agents[home.Domain], i)
	}

	for _, one := range append([]*Config{c}, hosted...) {
		if len(one.Agents) == 0 && (len(all) > 0 || one != c) {
			own := found.under(one)
			own.add("domain", "no agent lives at "+one.Domain, fmt.Sprintf("write domain = %q in a table [[agents]]", one.Domain))
			found.take(own)
		}
	}
	return hosted
}

// finishDomains derives and checks the settings of the further domains, those of c being complete.
func (c *Config) finishDomains(hosted []*Config, found *problems) {
	for _, one := range hosted {
		own := found.under(one)
		one.inherit(c, c.Domains[found.domains[one.Domain]])
		one.derive(own)
		one.validate(own)
		found.take(own)
	}
	c.Hosted = hosted
	c.validateHosts(found)
}

// inherit fills in what a further domain has of its own.
func (c *Config) inherit(top *Config, own Domain) {
	c.PublicURL, c.Apex = own.PublicURL, own.Apex
	if c.Apex == "" {
		c.Apex = ApexHere
	}
	if public, err := url.Parse(top.PublicURL); err == nil && c.PublicURL == "" {
		public.Host = identity.HostOf(c.Domain)
		if port := public.Port(); port != "" {
			public.Host = net.JoinHostPort(public.Host, port)
		}
		c.PublicURL = public.String()
	}

	if c.SMTP.Hostname = own.MailHost; own.MailHost == "" {
		c.SMTP.Hostname = top.SMTP.Hostname
	}
	c.SharesMailHost = strings.EqualFold(c.SMTP.Hostname, top.SMTP.Hostname)
	c.Mail.DKIMKeyFile = own.DKIMKeyFile
	if own.Contact != "" {
		c.Operator.Contact = own.Contact
	}
	if own.CertFile != "" || own.KeyFile != "" {
		c.HTTP.CertFile, c.HTTP.KeyFile = own.CertFile, own.KeyFile
	}

	if c.SecretKeyFile == "" {
		c.SecretKeyFile = filepath.Join(top.DataDir, "secret.key")
	}
	c.DataDir = filepath.Join(top.DataDir, "domains", fileName(c.Domain))
	c.DatabasePasswordFile = "" // its content is in the address by now
	c.DatabaseURL, c.BlobURL = databaseOf(top.DatabaseURL, c.Domain), filesOf(top.BlobURL, c.Domain)
	c.NewIdentity = top.NewIdentity
}

// databaseOf is the database of a further domain: a schema of its own in that of PostgreSQL, a file of its own in its data_dir else.
func databaseOf(top SecretURL, domain string) SecretURL {
	u, err := url.Parse(top.Reveal())
	if top == "sqlite" || err != nil {
		return top
	}
	// The other parameters stay as they are written: libpq and pgx read a "+" as such, and url.Values would write spaces so.
	others := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(pair string) bool {
		return pair == "" || strings.HasPrefix(pair, "search_path=")
	})
	u.RawQuery = strings.Join(append(others, "search_path="+SchemaOf(domain)), "&")
	return SecretURL(u.String())
}

// SchemaOf is the schema of PostgreSQL in which a further domain has its tables. The sum keeps names apart that are written alike without
// their dots and hyphens.
func SchemaOf(domain string) string {
	const most = 40 // PostgreSQL cuts names after 63 bytes
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, domain)
	sum := sha256.Sum256([]byte(domain))
	return "inbox_" + readable[:min(len(readable), most)] + "_" + hex.EncodeToString(sum[:4])
}

// filesOf is where the files of a further domain are.
func filesOf(top SecretURL, domain string) SecretURL {
	u, err := url.Parse(top.Reveal())
	if top == "file" || err != nil {
		return top // in data_dir, which each domain has for itself
	}
	u.Path = path.Join("/", u.Path, "domains", fileName(domain))
	return SecretURL(u.String())
}

// fileName is a domain as the name of a directory.
func fileName(domain string) string { return strings.ReplaceAll(domain, ":", "_") }

// validateHosts finds hosts that two domains have: nothing else tells requests for them apart.
func (c *Config) validateHosts(found *problems) {
	taken := map[string]string{}
	for _, one := range append([]*Config{c}, c.Hosted...) {
		own := found.under(one)
		for _, host := range one.WebHosts() {
			if other, is := taken[host]; is {
				own.add("public_url", fmt.Sprintf("%s is a host of %s too", host, other), "write another host: the server tells its domains apart by it")
			}
			taken[host] = one.Domain
		}
		found.take(own)
	}
}

func sameDomain(written, domain string) bool {
	parsed, err := identity.ParseDomain(written)
	other, failed := identity.ParseDomain(domain)
	return err == nil && failed == nil && parsed == other
}

// copyLists gives the lists of settings memory of their own, so that deriving one configuration writes into no other.
func copyLists(table reflect.Value) {
	for _, field := range fieldsOf(table) {
		switch {
		case isTable(field.Type()):
			copyLists(field)
		case field.Kind() == reflect.Slice && !field.IsNil():
			fresh := reflect.MakeSlice(field.Type(), field.Len(), field.Len())
			reflect.Copy(fresh, field)
			field.Set(fresh)
			for i := 0; isTableList(field.Type()) && i < field.Len(); i++ {
				copyLists(field.Index(i))
			}
		}
	}
}

// under is the list of problems as a domain's settings name them: the keys that it has of its own, and its agents, are elsewhere in the
// file. What is added there is taken back by take.
func (p *problems) under(c *Config) *problems {
	agents, several := p.agents[c.Domain]
	if p.domains == nil {
		return p
	}

	table, further := p.domains[c.Domain]
	own := &problems{origins: p.origins, metadata: p.metadata, domains: p.domains, agents: p.agents}
	own.rename = func(key string) string {
		if is, ok := ownKeys[key]; ok && further {
			return element("domains", table) + "." + is
		}
		rest, is := strings.CutPrefix(key, "agents[")
		number, rest, _ := strings.Cut(rest, "]")
		if index := indexOf(number); is && several && index >= 0 && index < len(agents) {
			return element("agents", agents[index]) + rest
		}
		return key
	}
	return own
}

// ownKeys are the keys that a further domain has in its table, by those at which the settings of a domain have them.
var ownKeys = map[string]string{
	"domain": "name", "public_url": "public_url", "http.cert_file": "cert_file", "http.key_file": "key_file", "smtp.hostname": "mail_host",
	"mail.dkim_key_file": "dkim_key_file", "operator.contact": "contact",
}

func indexOf(digits string) int {
	index := -1
	if _, err := fmt.Sscanf(digits, "%d", &index); err != nil {
		return -1
	}
	return index
}

// take adds what a domain's settings have wrong. Settings that all domains have in common are wrong once.
func (p *problems) take(own *problems) {
	if own == p {
		return
	}
	for _, problem := range own.found {
		if !slices.ContainsFunc(p.found, func(other error) bool { return other.Error() == problem.Error() }) {
			p.found = append(p.found, problem)
		}
	}
}

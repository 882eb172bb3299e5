package config

import (
	"net"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// Default returns the settings of a server without file and environment. Agents and the values that follow from
// others are filled in by Load.
func Default() *Config {
	return &Config{
		Apex: ApexHere, DataDir: "inbox-data", DatabaseURL: "sqlite", BlobURL: "file", ShutdownGrace: 20 * time.Second, Drain: unset,
		HTTP:       HTTP{Listen: "127.0.0.1:8080", TLS: "off", MaxBodyBytes: 10 << 20},
		ACME:       ACME{Directory: LetsEncrypt, CheckEvery: 10 * time.Minute},
		Database:   Database{Connections: 16},
		SMTP:       SMTP{Listen: "127.0.0.1:2525", MaxMessageBytes: 25 << 20, UnprovenMaxBytes: 5 << 20, MaxConnections: 200, ConnectionsPerAddress: 10, ConnectionsPerMinute: 60, MailsPerMinute: 60},
		Mail:       Mail{Mode: "capture", MXPort: 25, MTASTSPort: 443, DKIMSelector: "inbox", MTASTS: "testing", ReplyTo: "organization", DomainRate: unset, Retry: mailRetry()},
		Federation: Federation{Mode: "open", Retry: federationRetry(), RequireSignedHost: true, FollowersGetReplies: true, PostLength: 4000, HostConcurrency: unset, HostRate: unset},
		Limits:     defaultLimits(),
		Chat:       defaultChat(),
		Bridges:    defaultBridges(),
		Admin:      Admin{SessionIdle: 12 * time.Hour, SessionLifetime: 7 * 24 * time.Hour, OIDC: AdminOIDC{Scopes: []string{"openid", "email"}, GroupsClaim: "groups"}},
		Log:        Log{Level: "info", Format: "text"},
		Telemetry:  Telemetry{Sample: 1, Service: "inbox"},
		Retention:  defaultRetention(),
		Operator:   Operator{NotifyDigest: "08:00", NotifyZone: "UTC", OutageAfter: time.Minute, TakeoverIdle: 24 * time.Hour},
		A2A:        A2A{CallerConcurrency: 2000, MaxRequestBytes: 32 << 20},
		Queue:      Queue{Lease: 15 * time.Second, TurnConcurrency: 32, DeliveryConcurrency: 32},
	}
}

// unset marks a number whose default follows from other settings.
const unset = -1

// setDefaults fills a table [[agents]] before its keys are read.
func (a *Agent) setDefaults() {
	*a = Agent{
		Access: "public", Unverified: "hold", MaxHops: 4, ApproveReplies: "never", ShowTools: "none", Follows: "accept", Timeout: 2 * time.Minute,
		AckText:   "I am working on your message; the answer follows.",
		Retry:     AgentRetry{Schedule: agentRetry(), Waiting: []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}, Rate: 15, Probe: 10 * time.Second, Stale: "answer"},
		Retention: inherited(),
		LLM:       defaultLLM(),
		Command:   Command{Output: "json"},
		Pull:      Pull{Lease: 30 * time.Second, MaxWait: time.Minute},
		Fediverse: AgentFediverse{Discoverable: true, Quotes: "nobody"},
		History:   History{Scope: "thread", KeepHead: 2, Window: 20, Slide: 10, MaxBytes: 256 << 10, Alternation: "merge"},
	}
}

// defaultAgent answers with what it got, so that a new server can be tried at once.
func defaultAgent(development bool) Agent {
	var agent Agent
	agent.setDefaults()
	agent.Name, agent.Kind, agent.DisplayName = "echo", "echo", "Echo"
	agent.Summary = "Answers every message with what it got."
	if development {
		agent.Unverified = "answer"
	}
	return agent
}

// agentRetry adds up to about a day.
func agentRetry() []time.Duration {
	return []time.Duration{
		2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
	}
}

// federationRetry adds up to about three days.
func federationRetry() []time.Duration {
	return []time.Duration{
		30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// mailRetry starts quickly and goes on for five days (RFC 5321 section 4.5.4.1).
func mailRetry() []time.Duration {
	waits := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour}
	const step, end = 4 * time.Hour, 5 * 24 * time.Hour
	total := time.Duration(0)
	for _, wait := range waits {
		total += wait
	}

	for ; total+step <= end; total += step {
		waits = append(waits, step)
	}
	return waits
}

// defaultDrain is about two looks of a balancer at /readyz.
const defaultDrain = 5 * time.Second

// deriveEdge fills in what follows from where the server is reached.
func (c *Config) deriveEdge(found *problems) {
	if c.Drain == unset {
		c.Drain = defaultDrain
		if isLocal(identity.HostOf(domainOf(c.PublicURL))) {
			c.Drain = 0
		}
	}
	if !found.written("http.inside") {
		c.HTTP.Inside = []netip.Prefix{}
		if isLocal(identity.HostOf(domainOf(c.PublicURL))) {
			c.HTTP.Inside = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		}
	}
}

// BehindUnknownProxy reports whether the server is reached from outside although its listener is not, and no proxy is
// declared: then all clients of the proxy have one address.
func (c *Config) BehindUnknownProxy() bool {
	if isLocal(identity.HostOf(domainOf(c.PublicURL))) || len(c.HTTP.TrustedProxies) > 0 {
		return false
	}
	host, _, err := net.SplitHostPort(c.HTTP.Listen)
	if err != nil || host == "localhost" {
		return err == nil
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.Unmap().IsLoopback() || address.Unmap().IsPrivate())
}

// deriveTrust reads the secrets of other services and brings names into their canonical form.
func (c *Config) deriveTrust(found *problems) {
	for i := range c.Trust {
		canonical(&c.Trust[i].Issuer)
	}

	for i := range c.Peers {
		peer := &c.Peers[i]
		if domain, err := identity.ParseDomain(peer.Domain); err == nil {
			peer.Domain = domain
		}
		readSecret(&peer.Token, peer.TokenFile, element("peers", i)+".token_file", found)
	}

	for i := range c.Logins {
		login := &c.Logins[i]
		readSecret(&login.ClientSecret, login.ClientSecretFile, element("logins", i)+".client_secret_file", found)
	}

	for i := range c.Agents {
		for j := range c.Agents[i].Rules {
			canonical(&c.Agents[i].Rules[j].Issuer)
		}
	}

	c.Payments.FacilitatorURL = strings.TrimSuffix(c.Payments.FacilitatorURL, "/")
}

// canonical leaves what is no issuer as it was written, for the message about it.
func canonical(issuer *string) {
	if text, err := identity.CanonicalIssuer(*issuer); err == nil {
		*issuer = text
	}
}

// setShort reads `history = "person"`.
func (h *History) setShort(text string) { h.Scope = text }

// TrustedIssuers returns the trust list as evidence is held against it.
func (c *Config) TrustedIssuers() []identity.TrustedIssuer {
	list := make([]identity.TrustedIssuer, 0, len(c.Trust))
	for i := range c.Trust {
		list = append(list, c.Trust[i].trusted())
	}
	return list
}

func (t *Trust) trusted() identity.TrustedIssuer {
	return identity.TrustedIssuer{
		Issuer: t.Issuer, Methods: t.Methods, Assurance: t.Assurance, SubjectPrefixes: t.SubjectPrefixes,
		AllowDelegated: t.AllowDelegated, Expires: t.Expires,
	}
}

// AccessPolicy returns the agent's access and rules as senders are held against them.
func (a *Agent) AccessPolicy() identity.AccessPolicy {
	policy := identity.AccessPolicy{Access: a.Access}
	for i := range a.Rules {
		policy.Rules = append(policy.Rules, a.Rules[i].Identity())
	}
	if a.Kind == "llm" && len(a.LLM.Agents) > 0 { // listing them opens the tool; an earlier rule may close it again
		policy.Rules = append(policy.Rules, identity.Rule{Effect: identity.EffectAllow, Purposes: []string{identity.PurposeTool + askTool}})
	}
	return policy
}

// BackEnd is where what answers for the agent is: an address or a program, as written; empty for kinds without one.
func (a *Agent) BackEnd() string {
	return a.ofKind(KindNamed(a.Kind).BackEnd)
}

// SecretPath is the file of the secret that the agent and what answers for it share, as written; empty = none.
func (a *Agent) SecretPath() string { return a.ofKind(KindNamed(a.Kind).Secret) }

// ofKind is the text at a key of the table of the agent's kind.
func (a *Agent) ofKind(key string) string {
	if key == "" {
		return ""
	}
	table := fieldsOf(reflect.ValueOf(a).Elem())[a.Kind]
	return fieldsOf(table)[key].String()
}

// FullName is the name by which models and rules know the tool.
func (t *ClientTool) FullName() string { return "client/" + t.Name }

// ClosedTools are the tools of the agent that no rule opens, so that its model never sees them: programs outside by name, and
// `server/*` for MCP servers of which no tool is opened. Tools that need approval are offered without a rule: neither they nor the
// servers that may have such tools are among them.
func (a *Agent) ClosedTools() (closed []string) {
	policy := a.AccessPolicy()
	for i := range a.ClientTools {
		tool := &a.ClientTools[i]
		approved := tool.Action == "preview" || slices.ContainsFunc(a.LLM.Actions.Preview, func(pattern string) bool {
			matched, _ := path.Match(pattern, tool.FullName()) // validate checks the pattern
			return matched
		})
		if !approved && !policy.Opens(identity.PurposeTool+tool.FullName()) {
			closed = append(closed, tool.FullName())
		}
	}
	for i := range a.MCP {
		server := &a.MCP[i]
		approved := len(server.Preview) > 0 || slices.ContainsFunc(a.LLM.Actions.Preview, func(pattern string) bool {
			setting := toolSetting{name: pattern}
			return setting.mayBelongTo(server.Name)
		})
		if !approved && !policy.OpensAny(identity.PurposeTool+server.Name+"/") {
			closed = append(closed, server.Name+"/*")
		}
	}
	return closed
}

// Policies returns what the lists say, by tool or pattern and by category.
func (a *Actions) Policies() (tools, categories map[string]string) {
	tools, categories = map[string]string{}, map[string]string{}
	for policy, entries := range map[string][]string{"direct": a.Direct, "preview": a.Preview, "forbidden": a.Forbidden} {
		for _, entry := range entries {
			if category, is := strings.CutPrefix(entry, "category:"); is {
				categories[category] = policy
				continue
			}
			tools[entry] = policy
		}
	}
	return tools, categories
}

// Identity returns the rule as senders are held against it.
func (r *Rule) Identity() identity.Rule {
	return identity.Rule{
		Effect: r.Effect, Purposes: r.Purposes, Issuer: r.Issuer, Method: r.Method, Subject: r.Subject, Assurance: r.Assurance, Address: r.Address,
	}
}

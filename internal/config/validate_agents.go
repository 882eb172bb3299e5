package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/metadata"
)

func (c *Config) validateAgents(p *problems) {
	names, aliases := map[string]string{}, map[string]string{}
	for i := range c.Agents {
		key, agent := element("agents", i), &c.Agents[i]
		agent.validate(p, key)
		agent.validateAccess(p, key, c.Federation.AllowPrivate)
		agent.validateFediverse(p, key, c.Federation.AllowPrivate)
		agent.validateApprovals(p, key, c)
		agent.validateOpening(p, key)
		lower := strings.ToLower(agent.Name)
		if other, taken := names[lower]; taken {
			p.add(key+".name", fmt.Sprintf("%q is the name of another agent (%s)", agent.Name, other), "write another name; case does not count")
		}
		names[lower] = key
	}

	for i := range c.Agents {
		c.Agents[i].validateAliases(p, element("agents", i), c.Domain, names, aliases)
	}
	if name := c.Mail.CatchAll; name != "" && names[strings.ToLower(name)] == "" {
		p.add("mail.catch_all", fmt.Sprintf("there is no agent %q", name), "write the name of one of [[agents]]")
	}
}

// maxAliases bounds the further addresses of one agent.
const maxAliases = 50

// validateAliases brings the further addresses of an agent into the form in which they are compared. names are the agents, taken has the aliases
// of those before.
func (a *Agent) validateAliases(p *problems, key, domain string, names, taken map[string]string) {
	key += ".aliases"
	if len(a.Aliases) > maxAliases {
		p.add(key, fmt.Sprintf("has %d addresses", len(a.Aliases)), fmt.Sprintf("write at most %d", maxAliases))
	}

	for i, text := range a.Aliases {
		address, err := identity.ParseAddress(text)
		if err != nil || strings.HasPrefix(text, "@") || strings.Contains(address.Domain, "/") || strings.Contains(address.Local, "+") {
			p.add(key, fmt.Sprintf("%q is not a mail address", text), `write one without a tag, such as "support@example.com"`)
			continue
		}

		plain := strings.ToLower(address.Local + "@" + address.Domain)
		switch local := strings.ToLower(address.Local); {
		case taken[plain] != "":
			p.add(key, fmt.Sprintf("%q is an alias already (%s)", text, taken[plain]), "remove one of them")
		case strings.EqualFold(address.Domain, domain) && names[local] != "":
			p.add(key, fmt.Sprintf("%q is the address of an agent (%s)", text, names[local]), "write another address")
		}
		taken[plain], a.Aliases[i] = key, plain
	}
}

func (a *Agent) validate(p *problems, key string) {
	if !identity.ValidAgentName(a.Name) {
		p.add(key+".name", fmt.Sprintf("%q cannot be the part of an address before the @", a.Name),
			"write 1 to 64 letters, digits, dots, hyphens or underscores, no dot at either end")
	}

	oneOf(p, key+".kind", a.Kind, kinds...)
	oneOf(p, key+".unverified", a.Unverified, "answer", "hold", "refuse")

	if a.ReplyTo != "" {
		oneOf(p, key+".reply_to", a.ReplyTo, "organization", "signed", "never")
	}

	between(p, key+".max_hops", a.MaxHops, 1, 32)
	within(p, key+".timeout", a.Timeout, 100*time.Millisecond, 24*time.Hour)
	a.validateAck(p, key)
	a.Retry.validate(p, key+".retry")
	a.History.validate(p, key+".history")
	a.Retention.validate(p, key+".retention")
	a.validateKind(p, key)
}

// maxAckText bounds the words of an acknowledgement, in bytes.
const maxAckText = 1000

func (a *Agent) validateAck(p *problems, key string) {
	within(p, key+".ack_after", a.AckAfter, 0, 24*time.Hour)
	if strings.TrimSpace(a.AckText) == "" || len(a.AckText) > maxAckText {
		p.add(key+".ack_text", fmt.Sprintf("is empty or longer than %d bytes", maxAckText), "write a sentence, or remove the line")
	}
}

func (r *AgentRetry) validate(p *problems, key string) {
	schedule(p, key+".schedule", r.Schedule)
	schedule(p, key+".waiting", r.Waiting)
	between(p, key+".rate", r.Rate, 1, 1000)
	within(p, key+".probe", r.Probe, time.Second, 5*time.Minute)
	within(p, key+".stale_after", r.StaleAfter, 0, 366*24*time.Hour)
	oneOf(p, key+".stale", r.Stale, "answer", "apologise", "hold", "drop")
}

func (h *History) validate(p *problems, key string) {
	oneOf(p, key+".scope", h.Scope, "thread", "person")
	between(p, key+".keep_head", h.KeepHead, 0, 1000)
	between(p, key+".window", h.Window, 1, 10_000)
	between(p, key+".slide", h.Slide, 1, h.Window)
	between(p, key+".max_bytes", h.MaxBytes, 1<<10, 64<<20)
	oneOf(p, key+".alternation", h.Alternation, "merge", "drop", "off")
}

// Kind is what programs that write a table [[agents]] have to know of a kind of agent.
type Kind struct {
	Name         string
	BackEnd      string // key of its own table that says what answers; empty = the kind needs none
	Asks         string // that key in words
	Optional     bool   // the key has a default
	Secret       string // key with the file of a secret; empty = there is none
	NeedsSecret  bool   // the secret must not be empty, and the back end has to know it
	Model        bool   // provider and model belong to it
	SecretManual string // page that says what the back end does with the secret
}

// Kinds are the kinds of agents.
//
//nolint:gosec // G101: names of settings, no secrets
var Kinds = []Kind{
	{Name: "echo"},
	{Name: "webhook", BackEnd: "url", Asks: "URL of the webhook", Secret: "secret_file", NeedsSecret: true, SecretManual: "docs/agents/webhook.md"},
	{Name: "llm", BackEnd: "base_url", Asks: "Base URL of the model's provider", Optional: true, Secret: "api_key_file", Model: true},
	{Name: "command", BackEnd: "program", Asks: "Path of the program"},
	{Name: "remote", BackEnd: "card_url", Asks: "URL of its agent card", Secret: "token_file"},
	{Name: "pull"},
}

// KindNamed returns a kind of agent; an empty one when there is none of that name.
func KindNamed(name string) Kind {
	for _, kind := range Kinds {
		if kind.Name == name {
			return kind
		}
	}
	return Kind{}
}

// kinds are their names. Each but echo has a table of its own.
var kinds = kindNames()

func kindNames() (names []string) {
	for _, kind := range Kinds {
		names = append(names, kind.Name)
	}
	return names
}

// validateKind checks the table of the agent's kind, and that no other one was written.
func (a *Agent) validateKind(p *problems, key string) {
	for _, kind := range kinds {
		if kind != a.Kind && p.written(key+"."+kind) {
			p.add(key+"."+kind, "is not used, because the kind is "+a.Kind, fmt.Sprintf("write kind = %q or remove it", kind))
		}
	}

	if a.Kind != "llm" && len(a.MCP) > 0 {
		p.add(key+".mcp", "is not used, because the kind is "+a.Kind, `write kind = "llm" or remove it`)
	}
	if a.Kind != "llm" && len(a.ClientTools) > 0 {
		p.add(key+".client_tools", "is not used, because the kind is "+a.Kind, `write kind = "llm" or remove it`)
	}

	switch a.Kind {
	case "webhook":
		a.Webhook.validate(p, key+".webhook")
	case "llm":
		a.LLM.validate(p, key+".llm")
		a.validateMCP(p, key+".mcp")
		a.validateClientTools(p, key+".client_tools")
		a.validateToolNames(p, key)
	case "command":
		a.Command.validate(p, key+".command")
	case "remote":
		a.Remote.validate(p, key+".remote")
	case "pull":
		within(p, key+".pull.lease", a.Pull.Lease, time.Second, time.Hour)
		within(p, key+".pull.max_wait", a.Pull.MaxWait, time.Second, 10*time.Minute)
	}
}

func (w *Webhook) validate(p *problems, key string) {
	webAddress(p, key+".url", w.URL, "http://127.0.0.1:9000/")
	if w.Secret == "" && w.SecretFile == "" {
		p.add(key+".secret", "is missing, so the service could not tell our requests from forged ones",
			"write a long random text, or its file as secret_file")
	}
	if w.PreviousSecret != "" && w.PreviousSecret == w.Secret {
		p.add(key+".previous_secret", "is the same as secret", "write the key of before, or remove it")
	}
}

var mcpName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

func (a *Agent) validateMCP(p *problems, key string) {
	names := map[string]bool{}
	for i := range a.MCP {
		server, at := &a.MCP[i], element(key, i)
		switch {
		case !mcpName.MatchString(server.Name):
			p.add(at+".name", fmt.Sprintf("%q cannot lead the names of tools", server.Name), "write a lower-case letter, then letters, digits, _ and -, at most 32")
		case names[server.Name]:
			p.add(at+".name", fmt.Sprintf("%q is a duplicate", server.Name), "write another name")
		}

		names[server.Name] = true
		switch {
		case (server.Command == "") == (server.URL == ""):
			p.add(at, "needs either a command or a url", "write one of them")
		case server.URL != "":
			webAddress(p, at+".url", server.URL, "http://127.0.0.1:9001/mcp")
		}

		within(p, at+".timeout", server.Timeout, 100*time.Millisecond, time.Hour)
	}
}

func (c *Command) validate(p *problems, key string) {
	if c.Program == "" {
		p.add(key+".program", "is missing", "write the path of the program")
	}
	oneOf(p, key+".output", c.Output, "json", "text")
	between(p, key+".memory_bytes", c.MemoryBytes, 0, 1<<40)
}

func (r *Remote) validate(p *problems, key string) {
	webAddress(p, key+".card_url", r.CardURL, "https://agents.example/.well-known/agent-card.json")
	if r.TokenURL == "" {
		return
	}

	webAddress(p, key+".token_url", r.TokenURL, "https://login.example/token")
	if r.ClientID == "" {
		p.add(key+".client_id", "is missing", "write the client id for token_url")
	}
	if r.Token != "" || r.TokenFile != "" {
		p.add(key+".token", "and token_url exclude each other", "remove one of them")
	}
}

func webAddress(p *problems, key, text, example string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		p.add(key, fmt.Sprintf("%q is not a web address", text), fmt.Sprintf("write one such as %q", example))
		return
	}
	if metadata.NamedBy(u.Hostname()) && !p.allowsMetadata(u.Hostname()) {
		p.add(key, fmt.Sprintf("%q is a link-local address or a metadata service", text), "write the address of the service that you mean, and allow it in federation.metadata_addresses if it is this one")
	}
}

// allowsMetadata reports whether the operator allows this very address.
func (p *problems) allowsMetadata(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && slices.ContainsFunc(p.metadata, func(one netip.Prefix) bool { return one.Addr() == metadata.Plain(address) })
}

// readSecrets reads the files that hold the agent's secrets.
func (a *Agent) readSecrets(key string, found *problems) {
	readSecret(&a.Webhook.Secret, a.Webhook.SecretFile, key+".webhook.secret_file", found)
	readSecret(&a.Webhook.PreviousSecret, a.Webhook.PreviousSecretFile, key+".webhook.previous_secret_file", found)
	readSecret(&a.LLM.APIKey, a.LLM.APIKeyFile, key+".llm.api_key_file", found)
	readSecret(&a.LLM.Hooks.Secret, a.LLM.Hooks.SecretFile, key+".llm.hooks.secret_file", found)
	readSecret(&a.LLM.Hooks.PreviousSecret, a.LLM.Hooks.PreviousSecretFile, key+".llm.hooks.previous_secret_file", found)
	readSecret(&a.Remote.Token, a.Remote.TokenFile, key+".remote.token_file", found)
	readSecret(&a.Remote.ClientSecret, a.Remote.ClientSecretFile, key+".remote.client_secret_file", found)

	for i := range a.MCP {
		readSecret(&a.MCP[i].Token, a.MCP[i].TokenFile, element(key+".mcp", i)+".token_file", found)
	}

	for i := range a.ClientTools {
		a.ClientTools[i].readSchema(element(key+".client_tools", i), found)
	}

	if a.LLM.SystemFile == "" {
		return
	}

	var text Secret
	readSecret(&text, a.LLM.SystemFile, key+".llm.system_file", found)

	if a.LLM.System != "" {
		found.add(key+".llm.system_file", "the text is set twice", "write system or system_file, not both")
		return
	}

	a.LLM.System = string(text)
}

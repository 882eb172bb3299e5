package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"inbox/identity"
)

func (c *Config) validateAgents(p *problems) {
	names := map[string]string{}
	for i := range c.Agents {
		key, agent := element("agents", i), &c.Agents[i]
		agent.validate(p, key)
		agent.validateAccess(p, key, c.Federation.AllowPrivate)
		lower := strings.ToLower(agent.Name)
		if other, taken := names[lower]; taken {
			p.add(key+".name", fmt.Sprintf("%q is the name of another agent (%s)", agent.Name, other), "write another name; case does not count")
		}
		names[lower] = key
	}
}

func (a *Agent) validate(p *problems, key string) {
	if !identity.ValidAgentName(a.Name) {
		p.add(key+".name", fmt.Sprintf("%q cannot be the part of an address before the @", a.Name),
			"write 1 to 64 letters, digits, dots, hyphens or underscores, no dot at either end")
	}
	oneOf(p, key+".kind", a.Kind, "echo", "webhook")
	oneOf(p, key+".unverified", a.Unverified, "answer", "hold", "refuse")
	between(p, key+".max_hops", a.MaxHops, 1, 32)
	within(p, key+".timeout", a.Timeout, 100*time.Millisecond, 24*time.Hour)
	a.History.validate(p, key+".history")
	a.validateWebhook(p, key+".webhook")
}

func (h *History) validate(p *problems, key string) {
	oneOf(p, key+".scope", h.Scope, "thread", "person")
	between(p, key+".keep_head", h.KeepHead, 0, 1000)
	between(p, key+".window", h.Window, 1, 10_000)
	between(p, key+".slide", h.Slide, 1, h.Window)
	between(p, key+".max_bytes", h.MaxBytes, 1<<10, 64<<20)
	oneOf(p, key+".alternation", h.Alternation, "merge", "drop", "off")
}

func (a *Agent) validateWebhook(p *problems, key string) {
	if a.Kind != "webhook" {
		if a.Webhook != (Webhook{}) {
			p.add(key, "is not used, because the kind is "+a.Kind, `write kind = "webhook" or remove it`)
		}
		return
	}
	u, err := url.Parse(a.Webhook.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		p.add(key+".url", fmt.Sprintf("%q is not a web address", a.Webhook.URL), `write one such as "http://127.0.0.1:9000/"`)
	}
	if a.Webhook.Secret == "" && a.Webhook.SecretFile == "" {
		p.add(key+".secret", "is missing, so the service could not tell our requests from forged ones",
			"write a long random text, or its file as secret_file")
	}
}

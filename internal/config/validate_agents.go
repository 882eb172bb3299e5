package config

import (
	"fmt"
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
		agent.validateFediverse(p, key, c.Federation.AllowPrivate)
		agent.validateApprovals(p, key, c)
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

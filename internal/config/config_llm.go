package config

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// Price is what a million tokens of the model cost, for the timeline. Without prices it shows only the cost that the provider
// states.
type Price struct {
	// Tokens that the model reads.
	Input float64 `toml:"input"`
	// Tokens that it writes.
	Output float64 `toml:"output"`
	// Tokens that it reads from its cache; 0 = as `input`.
	CacheRead float64 `toml:"cache_read"`
	// Tokens that it writes into its cache; 0 = as `input`.
	CacheWrite float64 `toml:"cache_write"`
	// Currency of the prices, as in `USD`.
	Currency string `toml:"currency"`
}

// Actions are limits to how an agent of kind `llm` may use its tools. Entries are names such as `notes/add_note`, patterns such as `notes/*`,
// or `category:<name>`. A whole name takes precedence over a pattern, a pattern over a category, and of the same kind the
// stricter list counts. A tool that is in no list is used as its server or program says.
type Actions struct {
	// Called at once.
	Direct []string `toml:"direct"`
	// Called after someone approved.
	Preview []string `toml:"preview"`
	// Never called and never offered.
	Forbidden []string `toml:"forbidden"`
}

// ToolPolicy is which tools the model sees (agent runtime contract, section 4.8). A rule has to open each tool besides.
type ToolPolicy struct {
	// `deny`: all tools but those listed; `allow`: those listed alone.
	Mode string `toml:"mode"`
	// Names of tools that `mode` is about.
	Tools []string `toml:"tools"`
	// Categories of tools that `mode` is about.
	Categories []string `toml:"categories"`
	// Tools that stay, whatever `mode` and `allow_only` say.
	MandatoryTools []string `toml:"mandatory_tools"`
	// Categories that stay.
	MandatoryCategories []string `toml:"mandatory_categories"`
	// If there are any, the only tools beside the mandatory ones.
	AllowOnly []string `toml:"allow_only"`
	// Tools that are never shown.
	Deny []string `toml:"deny"`
	// Tools that a caller brings along and executes itself, and that may be shown.
	RuntimeTools []string `toml:"runtime_tools"`
	// Categories of such tools.
	RuntimeCategories []string `toml:"runtime_categories"`
	// Whether programs and senders without proof see tools that change something (`write`, or the categories write, publishing,
	// mutating, destructive). With false they see only the tools that are listed above.
	AllowWriteTools bool `toml:"allow_write_tools"`
}

// Compaction keeps conversations within what the model can read: the server keeps their older part in the database and replaces
// it by a summary that a model writes. Four bytes are about one token.
type Compaction struct {
	// Whether conversations are shortened at all.
	Enabled bool `toml:"enabled"`
	// Size of a conversation from which on it is shortened. The server also shortens it when the provider says that it is too
	// long.
	Threshold Size `toml:"threshold"`
	// How many of the last messages stay unchanged, while they fit into a quarter of the threshold.
	KeepMessages int `toml:"keep_messages"`
	// Size from which on the older part is stored without a summary, because reading it would cost too much.
	ArchiveOver Size `toml:"archive_over"`
	// Model that writes the summary, of the same provider.
	Model string `toml:"model" default:"that of the agent"`
}

func defaultLLM() LLM {
	return LLM{
		Provider: "openai", MaxTurns: 12, MaxToolCalls: 40, Streaming: true, CallTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute,
		Attempts: 5, RetryBase: 2 * time.Second, RetryMax: time.Minute,
		ToolPolicy: ToolPolicy{Mode: "deny", AllowWriteTools: true},
		Compaction: Compaction{Enabled: true, Threshold: 400 << 10, KeepMessages: 12, ArchiveOver: 2 << 20},
		Hooks:      defaultHooks(),
	}
}

func (l *LLM) validate(p *problems, key string) {
	oneOf(p, key+".provider", l.Provider, "openai", "anthropic")
	if l.BaseURL != "" {
		webAddress(p, key+".base_url", l.BaseURL, "http://127.0.0.1:11434/v1")
	}
	if l.Model == "" {
		p.add(key+".model", "is missing", "write the name of the model as its provider calls it")
	}

	between(p, key+".max_turns", l.MaxTurns, 1, 1000)
	between(p, key+".max_tool_calls", l.MaxToolCalls, 1, 10_000)
	between(p, key+".max_tokens", l.MaxTokens, 0, 10_000_000)

	if t := l.Temperature; t != nil && !(*t >= 0 && *t <= 2) {
		p.add(key+".temperature", fmt.Sprintf("%v is outside 0 to 2", *t), "write a number from 0 to 2")
	}

	within(p, key+".wall_clock", l.WallClock, 0, 24*time.Hour)
	if l.WallClock > 0 && l.WallClock < time.Second {
		p.add(key+".wall_clock", "counts whole seconds", "write at least 1s, or 0s for no limit")
	}

	within(p, key+".call_timeout", l.CallTimeout, time.Second, 24*time.Hour)
	within(p, key+".idle_timeout", l.IdleTimeout, time.Second, 24*time.Hour)
	between(p, key+".attempts", l.Attempts, 1, 20)
	within(p, key+".retry_base", l.RetryBase, time.Millisecond, time.Hour)
	within(p, key+".retry_max", l.RetryMax, l.RetryBase, time.Hour)
	l.validatePeers(p, key+".agents")
	l.Price.validate(p, key+".price")
	l.Actions.validate(p, key+".actions")
	oneOf(p, key+".tool_policy.mode", l.ToolPolicy.Mode, "allow", "deny")
	l.Compaction.validate(p, key+".compaction")
	for i := range l.ToolCallRules {
		l.ToolCallRules[i].validate(p, element(key+".tool_call_rules", i))
	}
	l.validateBudgets(p, key)
	l.Hooks.validate(p, key+".hooks")
}

// maxAskable bounds the agents that a model may ask: it reads all their addresses with every message.
const maxAskable = 50

func (l *LLM) validatePeers(p *problems, key string) {
	if len(l.Agents) > maxAskable {
		p.add(key, fmt.Sprintf("has %d addresses", len(l.Agents)), fmt.Sprintf("write at most %d", maxAskable))
	}
	for i, text := range l.Agents {
		if _, err := identity.ParseAddress(text); err != nil || !strings.HasPrefix(text, "@") {
			p.add(element(key, i), fmt.Sprintf("%q is not the address of an agent", text), `write "@name@domain"`)
		}
		if slices.Contains(l.Agents[:i], text) {
			p.add(element(key, i), fmt.Sprintf("%q is a duplicate", text), "remove one of them")
		}
	}
}

func (c *Price) validate(p *problems, key string) {
	for _, one := range []struct {
		name  string
		value float64
	}{{"input", c.Input}, {"output", c.Output}, {"cache_read", c.CacheRead}, {"cache_write", c.CacheWrite}} {
		if one.value < 0 || math.IsNaN(one.value) || math.IsInf(one.value, 0) {
			p.add(key+"."+one.name, fmt.Sprintf("%v is no price", one.value), "write what a million tokens cost, such as 3.0")
		}
	}
	if len(c.Currency) > 16 {
		p.add(key+".currency", "is longer than 16 bytes", `write a short name such as "USD"`)
	}
}

func (a *Actions) validate(p *problems, key string) {
	seen := map[string]string{}
	for _, list := range []struct {
		name    string
		entries []string
	}{{"direct", a.Direct}, {"preview", a.Preview}, {"forbidden", a.Forbidden}} {
		for i, entry := range list.entries {
			at := element(key+"."+list.name, i)
			if _, err := path.Match(entry, ""); err != nil || strings.TrimSpace(entry) != entry || entry == "" || entry == "category:" {
				p.add(at, fmt.Sprintf("%q is neither a tool nor a pattern", entry), `write one such as "notes/add_note", "notes/*" or "category:write"`)
			}
			if other, taken := seen[entry]; taken {
				p.add(at, fmt.Sprintf("%q is in %s already", entry, other), "remove one of them")
			}
			seen[entry] = list.name
		}
	}
}

func (c *Compaction) validate(p *problems, key string) {
	between(p, key+".threshold", c.Threshold, 4<<10, 64<<20)
	between(p, key+".keep_messages", c.KeepMessages, 1, 1000)
	between(p, key+".archive_over", c.ArchiveOver, c.Threshold, 64<<20)
}

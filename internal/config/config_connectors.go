package config

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"inbox/identity"
)

// Bridges is about programs that fetch answers themselves, and about connectors; [bridges.md](bridges.md) and
// [connectors.md](connectors.md) explain both.
type Bridges struct {
	// Pauses between attempts to call a bridge or connector. After the last one an answer for a connector is a dead letter; one
	// for a bridge stays in its queue.
	Retry []time.Duration `toml:"retry"`
	// How long a request may wait for an answer or for a queue. Keep it below the timeout of a proxy in front.
	MaxWait time.Duration `toml:"max_wait"`
}

// Connector is a program that relays another messenger to agents: it hands in messages at `/v1/connectors/<name>/messages`. See
// [connectors.md](connectors.md). One table per connector.
type Connector struct {
	// Name, part of its address: a small letter or digit, then small letters, digits and hyphens.
	Name string `toml:"name" default:"none; required"`
	// Its name in the operator's lists. Empty = `name`.
	DisplayName string `toml:"display_name"`
	// What it is for, in the operator's lists.
	Description string `toml:"description"`
	// Address of its picture, `https://…`, in the operator's lists; the server does not fetch it.
	Logo string `toml:"logo"`
	// What it is, in the operator's lists: `agent_channel`, `agent_bridge` or `messaging_provider`.
	Type string `toml:"type"`
	// Text that signs its messages and the callbacks (HMAC-SHA256), at least 16 bytes.
	Secret Secret `toml:"secret"`
	// File with that secret instead; a line end after it is cut off.
	SecretFile string `toml:"secret_file"`
	// The secret before it, while you change it: messages may be signed with either, callbacks are signed with both.
	PreviousSecret Secret `toml:"previous_secret"`
	// Whether every signature must have a time (`X-Inbox-Timestamp`), so that a captured request is worthless after five
	// minutes. Otherwise signatures over the body alone are accepted, too, and the id of the message reveals a repeat.
	RequireTimestamp bool `toml:"require_timestamp"`
	// Who vouches for its people, as in `[[trust]]`. What that entry covers counts as proven. Without it, people are known as
	// the connector's own.
	Issuer string `toml:"issuer"`
	// Method by which it knows its people, as in `[[trust]]`.
	Method string `toml:"method"`
	// Names of the agents that it may reach; a message that names none goes to the first.
	Agents []string `toml:"agents" default:"none; required"`
	// Where answers are sent, `https://…`; plain http and private addresses are allowed, because you wrote them.
	CallbackURL string `toml:"callback_url"`
	// Id of the bridge in whose queue answers wait instead (`inbox tokens create --bridge`).
	Bridge string `toml:"bridge"`
}

const platformMention = "urn:mentionable:auth:platform-mention:v0.1"

// setDefaults fills a table [[connectors]] before its keys are read.
func (c *Connector) setDefaults() { *c = Connector{Method: platformMention, Type: "agent_channel"} }

func defaultBridges() Bridges { return Bridges{Retry: callbackRetry(), MaxWait: 50 * time.Second} }

// callbackRetry adds up to about two days.
func callbackRetry() []time.Duration {
	return []time.Duration{
		5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	}
}

const shortestConnectorSecret = 16 // bytes

var bridgeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// deriveConnectors reads the files of secrets.
func (c *Config) deriveConnectors(found *problems) {
	for i := range c.Connectors {
		one := &c.Connectors[i]
		canonical(&one.Issuer)
		readSecret(&one.Secret, one.SecretFile, element("connectors", i)+".secret_file", found)
	}
}

func (c *Config) validateConnectors(p *problems) {
	for i, wait := range c.Bridges.Retry {
		within(p, element("bridges.retry", i), wait, 0, 7*24*time.Hour)
	}

	within(p, "bridges.max_wait", c.Bridges.MaxWait, time.Second, 10*time.Minute)
	names := map[string]bool{}
	for i := range c.Connectors {
		one, key := &c.Connectors[i], element("connectors", i)
		if names[one.Name] {
			p.add(key+".name", fmt.Sprintf("%q is a duplicate", one.Name), "write another name")
		}
		names[one.Name] = true
		one.validate(p, key, c.Federation.AllowPrivate)
		one.validateAgents(p, key, c.Agents)
	}
}

func (c *Connector) validate(p *problems, key string, private bool) {
	if !bridgeName.MatchString(c.Name) {
		p.add(key+".name", fmt.Sprintf("%q is not a name", c.Name), `write small letters, digits and hyphens, such as "slack"`)
	}
	if c.Issuer != "" {
		validateIssuer(p, key+".issuer", c.Issuer, private)
	}

	words(p, key+".method", []string{c.Method})
	if _, err := identity.CanonicalIssuer(c.Issuer); c.Secret == "" && (c.Issuer == "" || err != nil) {
		p.add(key+".secret", "is missing, so the server could not tell its messages from forged ones",
			"write a long random text, or its file as secret_file, or the issuer whose signed evidence proves it")
	}
	if c.Secret == "" && c.CallbackURL != "" {
		p.add(key+".secret", "is missing, so callbacks could not be signed", "write a long random text, or its file as secret_file")
	}

	for name, secret := range map[string]Secret{".secret": c.Secret, ".previous_secret": c.PreviousSecret} {
		if secret != "" && len(secret) < shortestConnectorSecret {
			p.add(key+name, "is too short to be secure", "write at least 16 bytes, such as: openssl rand -hex 32")
		}
	}

	oneOf(p, key+".type", c.Type, "agent_channel", "agent_bridge", "messaging_provider")
	if c.Logo != "" {
		webAddress(p, key+".logo", c.Logo, "https://files.example/slack.png")
	}
	if c.CallbackURL != "" {
		webAddress(p, key+".callback_url", c.CallbackURL, "http://127.0.0.1:9100/answers")
	}
	if c.Bridge != "" && (!bridgeName.MatchString(c.Bridge) || strings.HasSuffix(c.Bridge, "-")) {
		p.add(key+".bridge", fmt.Sprintf("%q is not the id of a bridge", c.Bridge), `write the name of its token, such as "relay"`)
	}
	if c.Bridge != "" && c.CallbackURL != "" {
		p.add(key+".bridge", "says one way for answers and callback_url another", "remove one of them")
	}
}

func (c *Connector) validateAgents(p *problems, key string, agents []Agent) {
	if len(c.Agents) == 0 {
		p.add(key+".agents", "is empty, so the connector reaches no agent", `write agents = ["echo"] or other names`)
	}
	for i, name := range c.Agents {
		known := false
		for _, agent := range agents {
			known = known || strings.EqualFold(agent.Name, name)
		}
		if !known {
			p.add(element(key+".agents", i), fmt.Sprintf("there is no agent %q", name), "write the name of one of [[agents]]")
		}
	}
}

package config

import (
	"fmt"
	"net/url"
	"time"
)

// Chat is chat over HTTP: JSON-RPC, REST, the form of OpenAI's API and the chat of web pages.
type Chat struct {
	// Origins of web pages elsewhere that may call the chat from a browser, such as `https://www.example.com`; `*` = all.
	// Pages of `public_url` always may.
	AllowedOrigins []string `toml:"allowed_origins"`
	// How long an answer that is not streamed is waited for. Afterwards the client is told to ask again; the run goes on.
	Wait time.Duration `toml:"wait"`
	// Whether guests may write to agents whose `unverified` is `hold`: their messages wait until you let them pass, and the
	// answer comes in the open page. Otherwise such agents take no guests.
	HoldGuests bool `toml:"hold_guests"`
}

func defaultChat() Chat { return Chat{Wait: 2 * time.Minute} }

func (c *Config) validateChat(p *problems) {
	within(p, "chat.wait", c.Chat.Wait, time.Second, time.Hour)
	for i, origin := range c.Chat.AllowedOrigins {
		u, err := url.Parse(origin)
		if origin == "*" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && origin == u.Scheme+"://"+u.Host {
			continue
		}
		p.add("chat.allowed_origins", fmt.Sprintf("entry %d, %q, is not an origin", i+1, origin), `write scheme, host and port alone, such as "https://www.example.com", or "*"`)
	}
}

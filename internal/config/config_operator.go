package config

import (
	"fmt"
	"net/url"
	"strings"

	"inbox/identity"
)

// Operator is who is responsible for this server. What is written here stands on the profile of every agent.
type Operator struct {
	// Name of the person or organisation.
	Name string `toml:"name"`
	// Mail address for questions and complaints.
	Contact string `toml:"contact"`
	// Account on the fediverse, `@user@domain`.
	Account string `toml:"account"`
	// Web page that says what is kept and for how long.
	Privacy string `toml:"privacy"`
	// Web page with the source of this server, or of its agents.
	Source string `toml:"source"`
	// Whether `contact` is told by mail, each at most once an hour: reports of other servers (`inbox reports list`), messages
	// that an agent failed to answer, and once for each outage that the program behind an agent is down.
	Notify bool `toml:"notify"`
}

func (c *Config) validateOperator(p *problems) {
	for key, text := range map[string]string{"operator.contact": c.Operator.Contact, "operator.account": c.Operator.Account} {
		if _, err := identity.ParseAddress(text); text != "" && err != nil {
			p.add(key, fmt.Sprintf("%q is not an address", text), `write one such as "help@example.com"`)
		}
	}
	for key, text := range map[string]string{"operator.privacy": c.Operator.Privacy, "operator.source": c.Operator.Source} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			p.add(key, fmt.Sprintf("%q is not a web address", text), `write one such as "https://example.com/privacy"`)
		}
	}
	if c.Operator.Notify && (c.Operator.Contact == "" || c.SMTP.Listen == "") {
		p.add("operator.notify", "needs operator.contact and email", "write an address, and do not turn smtp.listen off")
	}
	if len(c.Operator.Name) > 200 || strings.ContainsAny(c.Operator.Name, "\r\n") {
		p.add("operator.name", "is not one line of at most 200 bytes", "write a name")
	}
}

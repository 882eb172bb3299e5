package config

import (
	"fmt"
	"strings"

	"inbox/identity"
)

// maxApprovers bounds the approvers of one agent: each of them is written to for every approval.
const maxApprovers = 20

func (a *Agent) validateApprovals(p *problems, key string, c *Config) {
	oneOf(p, key+".approve_replies", a.ApproveReplies, "never", "always", "unverified")
	if len(a.Approvers) > maxApprovers {
		p.add(key+".approvers", fmt.Sprintf("has %d addresses", len(a.Approvers)), fmt.Sprintf("write at most %d", maxApprovers))
	}
	seen := map[string]bool{}
	for _, text := range a.Approvers {
		address, err := identity.ParseAddress(text)
		switch {
		case err != nil:
			p.add(key+".approvers", fmt.Sprintf("%q is not an address", text), `write "@owner@social.example" or "owner@example.org"`)
		case seen[strings.ToLower(address.String())]:
			p.add(key+".approvers", fmt.Sprintf("%q is written twice", text), "remove one of them")
		case address.Domain == c.Domain || identity.HostOf(address.Domain) == identity.HostOf(c.Domain) && !strings.HasPrefix(text, "@"):
			p.add(key+".approvers", fmt.Sprintf("%q is an address of this server, where only agents live", text), "write the address of a person elsewhere")
		case !strings.HasPrefix(text, "@") && c.SMTP.Listen == "":
			p.add(key+".approvers", fmt.Sprintf("%q is a mailbox, and email is off", text), "set smtp.listen, or write an address of the fediverse: @user@domain")
		}
		seen[strings.ToLower(address.String())] = true
	}
}

package config

import (
	"strings"

	"inbox/identity"
)

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
		policy.Rules = append(policy.Rules, identity.Rule{Effect: identity.EffectAllow, Purposes: []string{identity.PurposeTool + "ask_agent"}})
	}
	return policy
}

// Identity returns the rule as senders are held against it.
func (r *Rule) Identity() identity.Rule {
	return identity.Rule{
		Effect: r.Effect, Purposes: r.Purposes, Issuer: r.Issuer, Method: r.Method, Subject: r.Subject, Assurance: r.Assurance, Address: r.Address,
	}
}

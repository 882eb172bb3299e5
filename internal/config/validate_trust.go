package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"inbox/identity"
)

const maxRules = 1000

func (a *Agent) validateAccess(p *problems, key string, private bool) {
	oneOf(p, key+".follows", a.Follows, "accept", "hold", "reject")
	oneOf(p, key+".access", a.Access, "public", "verified", "rules")

	if len(a.Rules) > 0 && !p.written(key+".access") {
		p.add(key+".access", "is not written, but there are rules: the agent would be open to anyone once the last of them is removed",
			`write access = "public" to leave it open to everyone, as it was without rules, or access = "rules" to let in only whom they allow`)
	}
	if len(a.Rules) > maxRules {
		p.add(key+".rules", fmt.Sprintf("there are %d", len(a.Rules)), fmt.Sprintf("write at most %d", maxRules))
	}

	for i := range a.Rules {
		before := len(p.found)
		a.Rules[i].validate(p, element(key+".rules", i), private)
		one := Agent{Access: "rules", Rules: a.Rules[i : i+1]}
		if err := one.AccessPolicy().Validate(); err != nil && len(p.found) == before {
			p.add(element(key+".rules", i), strings.TrimPrefix(err.Error(), "rule 1: "), "correct the rule")
		}
	}
}

func (r *Rule) validate(p *problems, key string, private bool) {
	oneOf(p, key+".effect", r.Effect, "allow", "deny")
	for i, purpose := range r.Purposes {
		switch {
		case strings.Contains(purpose, "*"):
			p.add(element(key+".purposes", i), fmt.Sprintf("%q has a star, but tools and skills are named whole", purpose),
				"write each tool or skill that the rule is about; inbox doctor shows the names of the tools")
		case !isPurpose(purpose):
			p.add(element(key+".purposes", i), fmt.Sprintf("%q is unknown", purpose), `write "message", "tool:<name>" or "skill:<id>"`)
		}
	}

	if r.Issuer != "" {
		validateIssuer(p, key+".issuer", r.Issuer, private)
	}
	if strings.ContainsAny(r.Method, blanks) {
		p.add(key+".method", fmt.Sprintf("%q is not a method", r.Method), "write its name in full, without * and blanks; leave it out to match all")
	}

	words(p, key+".assurance", r.Assurance)
	if !isSubject(r.Subject) {
		p.add(key+".subject", fmt.Sprintf("%q is neither a subject nor a beginning that ends at a separator", r.Subject),
			`write the whole subject, or a beginning such as "slack:T123/*"; leave it out to match everybody`)
	}

	r.validateReplies(p, key+".approve_replies")
	if !isAddressPattern(r.Address) {
		p.add(key+".address", fmt.Sprintf("%q is not a pattern over addresses", r.Address), `write one such as "@alice@example.org" or "@*@example.org"`)
	}
}

// validateReplies wants the key where replies are: the agent never talks with senders that a rule refuses.
func (r *Rule) validateReplies(p *problems, key string) {
	if r.ApproveReplies == "" {
		return
	}
	oneOf(p, key, r.ApproveReplies, "never", "always", "unverified")
	if r.Effect != "allow" || len(r.Purposes) > 0 && !slices.Contains(r.Purposes, "message") {
		p.add(key, "is not used, because the rule admits no one to the agent", `write it into a rule with effect = "allow" and purposes = ["message"]`)
	}
}

func isPurpose(purpose string) bool {
	if purpose == "message" {
		return true
	}
	kind, name, _ := strings.Cut(purpose, ":")
	return (kind == "tool" || kind == "skill") && name != "" && !strings.ContainsAny(name, blanks[1:])
}

func isSubject(subject string) bool {
	if prefix, ok := strings.CutSuffix(subject, "*"); ok {
		return endsAtSeparator(prefix)
	}
	return !strings.ContainsAny(subject, blanks)
}

// isAddressPattern wants both halves of an address, so that no pattern covers a domain by accident.
func isAddressPattern(pattern string) bool {
	if pattern == "" {
		return true
	}
	local, domain, found := strings.Cut(strings.TrimPrefix(pattern, "@"), "@")
	return found && local != "" && domain != "" && !strings.ContainsAny(pattern, blanks[1:]) && !strings.Contains(domain, "@")
}

const (
	separators  = "/:#?=@"   // the ends of what a prefix may name whole: slack:T123/ never lets slack:T1234/… in
	blanks      = "* \t\r\n" // what no name of a method or subject has
	issuerShape = `write a host such as "chat.example", its https:// origin, or "did:web:chat.example"`
	privateOnly = "write the host alone, or federation.allow_private = true for a closed network"
)

// validateTrust checks the trusted issuers and the services that prove something to us.
func (c *Config) validateTrust(p *problems) {
	private := c.Federation.AllowPrivate
	for i := range c.Trust {
		c.Trust[i].validate(p, element("trust", i), private)
	}

	c.validatePeers(p)
	c.validateLogins(p)
	c.validateAdmin(p)
	const key = "payments.facilitator_url"
	if text := c.Payments.FacilitatorURL; text != "" && !isServiceURL(text, private) {
		p.add(key, fmt.Sprintf("%q is not the address of a facilitator", text), `write one such as "https://facilitator.example", without query; plain http on this machine only`)
	}
}

func (t *Trust) validate(p *problems, key string, private bool) {
	before := len(p.found)
	validateIssuer(p, key+".issuer", t.Issuer, private)
	needed(p, key+".methods", t.Methods, `write methods = ["urn:mentionable:auth:slack-workspace-member:v0.1"] or another`)
	needed(p, key+".assurance", t.Assurance, `write assurance = ["platform"] or another`)
	needed(p, key+".subject_prefixes", t.SubjectPrefixes, `write subject_prefixes = ["slack:T123/"] or another`)
	words(p, key+".methods", t.Methods)
	words(p, key+".assurance", t.Assurance)

	for i, prefix := range t.SubjectPrefixes {
		if !endsAtSeparator(prefix) {
			p.add(element(key+".subject_prefixes", i), fmt.Sprintf("%q does not end at a separator, so it would cover longer names, too", prefix),
				"end it with one of / : # ? = @")
		}
	}

	if err := t.trusted().Validate(); err != nil && len(p.found) == before {
		p.add(key, err.Error(), "correct the entry")
	}
}

// needed refuses an empty list: it trusts nothing, which is never written on purpose.
func needed(p *problems, key string, list []string, remedy string) {
	if len(list) == 0 {
		p.add(key, "is empty, so no evidence of this issuer is accepted", remedy)
	}
}

// words refuses patterns and blanks where names are compared letter by letter.
func words(p *problems, key string, list []string) {
	for i, word := range list {
		if word == "" || strings.ContainsAny(word, blanks) {
			p.add(element(key, i), fmt.Sprintf("%q is not a name", word), "write the name in full, without * and blanks")
		}
	}
}

func validateIssuer(p *problems, key, issuer string, private bool) {
	canonical, err := identity.CanonicalIssuer(issuer)
	switch {
	case err != nil:
		p.add(key, fmt.Sprintf("%q is not an issuer", issuer), issuerShape)
	case !private && !strings.HasPrefix(canonical, "did:") && identity.HostOf(canonical) != canonical:
		p.add(key, fmt.Sprintf("%q has a port", issuer), privateOnly)
	}
}

func endsAtSeparator(prefix string) bool {
	return prefix != "" && !strings.ContainsAny(prefix, blanks) && strings.ContainsRune(separators, rune(prefix[len(prefix)-1]))
}

func (c *Config) validatePeers(p *problems) {
	taken := map[string]string{}
	for i := range c.Peers {
		key, peer := element("peers", i), &c.Peers[i]
		domain, err := identity.ParseDomain(peer.Domain)
		switch host := identity.HostOf(domain); {
		case err != nil || host == "":
			p.add(key+".domain", fmt.Sprintf("%q is not a domain", peer.Domain), `write the part of the agents' addresses after the last @, such as "agents.example"`)
		case !c.Federation.AllowPrivate && host != domain:
			p.add(key+".domain", fmt.Sprintf("%q has a port", peer.Domain), privateOnly)
		case taken[domain] != "":
			p.add(key+".domain", fmt.Sprintf("%q is a duplicate (%s)", domain, taken[domain]), "keep one of the two")
		}

		taken[domain] = key
		if token := peer.Token.Reveal(); !isToken(token) && (token != "" || peer.TokenFile == "") {
			p.add(key+".token", "is not a bearer token", "write the token that the peer's operator minted for you, or its file as token_file")
		}
	}
}

// isToken is the form of bearer tokens (RFC 6750 section 2.1): without it a line end could leave in a header.
var isToken = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`).MatchString

var isLoginName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString

func (c *Config) validateLogins(p *problems) {
	taken := map[string]string{}
	for i := range c.Logins {
		key, login := element("logins", i), &c.Logins[i]
		if other := taken[login.Name]; other != "" {
			p.add(key+".name", fmt.Sprintf("%q is the name of another login (%s)", login.Name, other), "write another name")
		}
		taken[login.Name] = key
		login.validate(p, key, c.Federation.AllowPrivate)
	}
}

func (l *Login) validate(p *problems, key string, private bool) {
	if !isLoginName(l.Name) {
		p.add(key+".name", fmt.Sprintf("%q is not a short name", l.Name), `write 1 to 32 lower-case letters, digits and hyphens, such as "company"`)
	}
	if u, ok := plainURL(l.Issuer); !ok || u.Scheme == "http" && !private {
		p.add(key+".issuer", fmt.Sprintf("%q is not the address of a login service", l.Issuer), `write its issuer URL such as "https://login.example.com"; http only with federation.allow_private`)
	}
	if l.ClientID == "" {
		p.add(key+".client_id", "is missing", "register the server at the login service and write the id that it gives")
	}
	if !slices.Contains(l.Scopes, "openid") {
		p.add(key+".scopes", `lack "openid", without which the service does not say who logged in`, `write scopes = ["openid"] and more if you need them`)
	}
	words(p, key+".scopes", l.Scopes)
}

// isServiceURL takes https, and http to this machine or where private addresses are allowed.
func isServiceURL(text string, private bool) bool {
	u, ok := plainURL(text)
	return ok && (u.Scheme == "https" || private || isLocal(u.Hostname()))
}

// plainURL reads an address over http or https that has nothing but host and path.
func plainURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, false
	}
	return u, u.Scheme == "https" || u.Scheme == "http"
}

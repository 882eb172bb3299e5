package config

import (
	"fmt"
	"slices"
	"strings"
)

const maxRules = 1000

func (a *Agent) validateAccess(p *problems, key string, private bool) {
	oneOf(p, key+".follows", a.Follows, "accept", "hold", "reject")
	oneOf(p, key+".access", a.Access, "public", "verified", "rules")
	if len(a.Rules) > 0 && !p.written(key+".access") {
		p.add(key+".access", "is not written, but there are rules: the agent would be open to anyone once the last of them is removed",
			`write access = "rules" to let in only whom they allow, or access = "public" to keep others in`)
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
		if !isPurpose(purpose) {
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

// validateReplies wants the key where replies are: with whom a rule keeps out nobody talks.
func (r *Rule) validateReplies(p *problems, key string) {
	if r.ApproveReplies == "" {
		return
	}
	oneOf(p, key, r.ApproveReplies, "never", "always", "unverified")
	if r.Effect != "allow" || len(r.Purposes) > 0 && !slices.Contains(r.Purposes, "message") {
		p.add(key, "is not used, because the rule lets nobody talk to the agent", `write it into a rule with effect = "allow" and purposes = ["message"]`)
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

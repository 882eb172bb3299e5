package identity

import (
	"fmt"
	"slices"
	"strings"
)

// Codes of a Decision that does not allow.
const (
	CodeAccessDenied     = "access:denied_by_rule"
	CodeAccessNoRule     = "access:no_rule"
	CodeAccessUnverified = "access:unverified"
)

// Decision is the answer of an AccessPolicy. Code and Reason are empty when it allows; Reason is for the operator.
type Decision struct {
	Allowed bool
	Rule    int // index of the rule that decided; -1 = none
	Code    string
	Reason  string
}

// Decide reports whether somebody may use the agent for a purpose. Address is the sender's as stated, evidence what is
// believed about the sender. The first rule that matches decides. Without one a message is open to everybody with
// AccessPublic, to everybody with evidence with AccessVerified; tools and skills always need a rule.
func (p AccessPolicy) Decide(purpose, address string, evidence []Evidence) Decision {
	for i, rule := range p.Rules {
		switch {
		case !rule.serves(purpose) || !rule.matches(address, evidence):
			continue
		case rule.Effect == EffectAllow:
			return Decision{Allowed: true, Rule: i}
		}
		return Decision{Rule: i, Code: CodeAccessDenied, Reason: fmt.Sprintf("rule %d keeps the sender out of %s", i+1, purpose)}
	}
	return p.otherwise(purpose, evidence)
}

func (p AccessPolicy) otherwise(purpose string, evidence []Evidence) Decision {
	talks := purpose == PurposeMessage
	switch {
	case talks && p.Access == AccessPublic, talks && p.Access == AccessVerified && len(evidence) > 0:
		return Decision{Allowed: true, Rule: -1}
	case talks && p.Access == AccessVerified:
		return Decision{Rule: -1, Code: CodeAccessUnverified, Reason: "nothing proves who the sender is"}
	}
	return Decision{Rule: -1, Code: CodeAccessNoRule, Reason: "no rule lets the sender use " + purpose}
}

func (r Rule) serves(purpose string) bool {
	if len(r.Purposes) == 0 {
		return purpose == PurposeMessage
	}
	return slices.Contains(r.Purposes, purpose)
}

// Matches reports whether the rule is about a sender, whatever its purposes: the evidence that Decide would ask for is there.
func (r Rule) Matches(address string, evidence []Evidence) bool { return r.matches(address, evidence) }

// matches is false for an allow rule that Validate refuses, and true for every other rule that it refuses.
func (r Rule) matches(address string, evidence []Evidence) bool {
	if r.Effect != EffectAllow {
		return r.validate() != nil || r.deniesAddress(address, evidence) && (r.anyone() || slices.ContainsFunc(evidence, r.fits))
	}
	if r.anyone() && r.Address == "" {
		return r.validate() == nil
	}
	return slices.ContainsFunc(evidence, func(e Evidence) bool { return r.fits(e) && r.proven(address, e) }) && r.validate() == nil
}

// anyone says that the rule asks for no evidence.
func (r Rule) anyone() bool {
	return r.Issuer == "" && r.Method == "" && r.Subject == "" && len(r.Assurance) == 0
}

func (r Rule) fits(e Evidence) bool {
	return (r.Method == "" || r.Method == e.Method) &&
		(r.Subject == "" || matchesSubject(r.Subject, e.Subject)) &&
		(len(r.Assurance) == 0 || slices.Contains(r.Assurance, e.Assurance)) &&
		(r.Issuer == "" || sameIssuers(r.Issuer, e.Issuer))
}

func sameIssuers(a, b string) bool {
	canonical, err := CanonicalIssuer(a)
	return err == nil && sameIssuer(b, canonical)
}

func matchesSubject(pattern, subject string) bool {
	if prefix, star := strings.CutSuffix(pattern, "*"); star {
		return strings.HasPrefix(subject, prefix)
	}
	return pattern == subject
}

// proven reports whether the address fits and the evidence vouches for it. A glob that leaves the local part open asks for
// the domain alone; every other one asks for the whole address.
func (r Rule) proven(address string, e Evidence) bool {
	if r.Address == "" {
		return true
	}
	glob, err := parseAddressGlob(r.Address)
	stated, bad := ParseAddress(address)
	if err != nil || bad != nil || !glob.matches(stated, false) {
		return false
	}
	return e.Vouches(address) || glob.local == "*" && e.VouchesDomain(stated.Domain)
}

// NamesLocal reports whether an allow rule of the policy asks for more than the domain of an address whose local part is
// the given one: the sender has to prove the whole address then, on whatever domain.
func (p AccessPolicy) NamesLocal(local string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		glob, err := parseAddressGlob(r.Address)
		return r.Effect == EffectAllow && err == nil && glob.local != "*" && matchStars(strings.ToLower(glob.local), strings.ToLower(local))
	})
}

// deniesAddress compares the address as it is stated, and every address that the evidence proves.
func (r Rule) deniesAddress(address string, evidence []Evidence) bool {
	if r.Address == "" {
		return true
	}
	glob, err := parseAddressGlob(r.Address)
	if err != nil {
		return true
	}
	if stated, err := ParseAddress(address); err == nil && glob.matches(stated, true) {
		return true
	}
	return slices.ContainsFunc(evidence, func(e Evidence) bool {
		proven, ok := e.provenAddress()
		return ok && glob.matches(proven, true)
	})
}

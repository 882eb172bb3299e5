package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Values of AccessPolicy.Access. No value opens an agent by being left out.
const (
	AccessPublic   = "public"   // anyone may talk
	AccessVerified = "verified" // anyone with valid evidence
	AccessRules    = "rules"    // only whom a rule lets in
)

// Effects of a Rule.
const (
	EffectAllow = "allow"
	EffectDeny  = "deny"
)

// PurposeMessage is talking to an agent. The other purposes are PurposeTool and PurposeSkill with a name behind them.
const (
	PurposeMessage = "message"
	PurposeTool    = "tool:"
	PurposeSkill   = "skill:"
)

// Rule admits senders or refuses them. Empty fields match everything; of several fields one piece of evidence must
// match all.
type Rule struct {
	Effect    string   // EffectAllow or EffectDeny
	Purposes  []string // PurposeMessage, "tool:<name>", "skill:<id>"; empty = PurposeMessage
	Issuer    string   // see CanonicalIssuer
	Method    string
	Subject   string   // exact, or a literal prefix that ends at a separator, then *
	Assurance []string // one of these

	// Address is a glob over the sender's address, @local@domain: * is any text of the local part, a label * in front of a
	// domain is one label, a label ** is one or more. An allow rule wants evidence that vouches for the address; where the
	// local part is * alone, for its domain. A deny rule also compares the address as it is stated, without regard to case: a
	// lie may only harm the liar.
	Address string
}

// AccessPolicy decides which senders may use an agent for what. The rules are asked in order, the first match decides
// (message contract, section 10).
type AccessPolicy struct {
	Access string
	Rules  []Rule
}

const (
	maxRules    = 1000
	maxPurposes = 64
)

// Validate returns the first mistake of the policy, with the number of its rule.
func (p AccessPolicy) Validate() error {
	if p.Access != AccessPublic && p.Access != AccessVerified && p.Access != AccessRules {
		return fmt.Errorf("access: want %s, %s or %s, got %q", AccessPublic, AccessVerified, AccessRules, p.Access)
	}
	if len(p.Rules) > maxRules {
		return fmt.Errorf("rules: more than %d", maxRules)
	}

	for i, rule := range p.Rules {
		if err := rule.validate(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (r Rule) validate() error {
	if r.Effect != EffectAllow && r.Effect != EffectDeny {
		return fmt.Errorf("effect: want %s or %s, got %q", EffectAllow, EffectDeny, r.Effect)
	}
	if err := checkPurposes(r.Purposes); err != nil {
		return err
	}
	if slices.Contains(r.Assurance, "") {
		return errors.New("assurance: an entry is empty")
	}
	if err := checkSubjectPattern(r.Subject); err != nil {
		return err
	}

	if r.Issuer != "" {
		if _, err := CanonicalIssuer(r.Issuer); err != nil {
			return err
		}
	}

	if r.Address != "" {
		if _, err := parseAddressGlob(r.Address); err != nil {
			return err
		}
	}

	return nil
}

func checkPurposes(purposes []string) error {
	if len(purposes) > maxPurposes {
		return fmt.Errorf("purposes: more than %d", maxPurposes)
	}

	for _, purpose := range purposes {
		tool, isTool := strings.CutPrefix(purpose, PurposeTool)
		skill, isSkill := strings.CutPrefix(purpose, PurposeSkill)
		if purpose != PurposeMessage && (!isTool || tool == "") && (!isSkill || skill == "") || strings.Contains(purpose, "*") {
			return fmt.Errorf("purposes: want %s, tool:<name> or skill:<id>, got %q", PurposeMessage, purpose)
		}
	}
	return nil
}

func checkSubjectPattern(pattern string) error {
	prefix, star := strings.CutSuffix(pattern, "*")
	if strings.Contains(prefix, "*") || star && !endsAtSeparator(prefix) {
		return fmt.Errorf("subject: * must be at the end after a separator (one of / : # ? = @), got %q", pattern)
	}
	return nil
}

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

// Decide reports whether a sender may use the agent for a purpose. The address that the sender states can only refuse; evidence is
// what is accepted about the sender. The first rule that matches decides. Without one a message is open to all senders with
// AccessPublic, to senders with evidence with AccessVerified; tools and skills always need a rule.
func (p AccessPolicy) Decide(purpose string, stated StatedAddress, evidence []Evidence) Decision {
	for i, rule := range p.Rules {
		switch {
		case !rule.serves(purpose) || !rule.matches(stated, evidence):
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

// Opens reports whether a rule lets some sender use the agent for a purpose that needs one, such as a tool.
func (p AccessPolicy) Opens(purpose string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Effect == EffectAllow && slices.Contains(r.Purposes, purpose) })
}

// OpensAny reports whether a rule opens a purpose that begins so.
func (p AccessPolicy) OpensAny(prefix string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Effect == EffectAllow && slices.ContainsFunc(r.Purposes, func(purpose string) bool { return strings.HasPrefix(purpose, prefix) })
	})
}

func (r Rule) serves(purpose string) bool {
	if len(r.Purposes) == 0 {
		return purpose == PurposeMessage
	}
	return slices.Contains(r.Purposes, purpose)
}

// Matches reports whether the rule is about a sender, whatever its purposes: the evidence that Decide would ask for is there.
func (r Rule) Matches(stated StatedAddress, evidence []Evidence) bool {
	return r.matches(stated, evidence)
}

// matches is false for an allow rule that Validate refuses, and true for every other rule that it refuses.
func (r Rule) matches(stated StatedAddress, evidence []Evidence) bool {
	if r.Effect != EffectAllow {
		return r.validate() != nil || r.deniesAddress(stated, evidence) && (r.anyone() || slices.ContainsFunc(evidence, r.fits))
	}
	if r.anyone() && r.Address == "" {
		return r.validate() == nil
	}
	return slices.ContainsFunc(evidence, func(e Evidence) bool { return r.fits(e) && r.proven(stated, e) }) && r.validate() == nil
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

// proven reports whether the evidence vouches for the address under which the sender speaks, and the rule is about it: evidence about
// a carrier opens nothing for the people whose messages it brings. An actor whose address is not confirmed has proven its host, which is
// enough for a glob that leaves the local part open.
func (r Rule) proven(address StatedAddress, e Evidence) bool {
	if r.Address == "" {
		return true
	}
	glob, err := parseAddressGlob(r.Address)
	stated, bad := address.Parse()
	if err != nil || bad != nil || !glob.matches(stated, false) {
		return false
	}
	proven, is := e.vouched()
	return is && proven == stated || glob.local == "*" && e.fromActivityPub() && hostOfIRI(e.Subject) == stated.Domain
}

// NamesLocal reports whether a rule of the policy asks for more than the domain of an address whose local part is the given
// one: the whole address of such a sender has to be known before the rules are asked, on whatever domain.
func (p AccessPolicy) NamesLocal(local string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		glob, err := parseAddressGlob(r.Address)
		return err == nil && glob.local != "*" && matchStars(strings.ToLower(glob.local), strings.ToLower(local))
	})
}

// deniesAddress compares the address as it is stated, and every address that the evidence proves.
func (r Rule) deniesAddress(address StatedAddress, evidence []Evidence) bool {
	if r.Address == "" {
		return true
	}

	glob, err := parseAddressGlob(r.Address)
	if err != nil {
		return true
	}
	if stated, err := address.Parse(); err == nil && glob.matches(stated, true) {
		return true
	}

	return slices.ContainsFunc(evidence, func(e Evidence) bool {
		proven, ok := e.vouched()
		return ok && glob.matches(proven, true)
	})
}

// What a caller can do about a closed purpose, in the card.
const (
	OtherwiseUnauthorized = "unauthorized" // come again with evidence
	OtherwiseForbidden    = "forbidden"    // ask the operator
)

// PublishedPolicy is what the card says about an AccessPolicy, key mentionable.identity_policy (message contract, section 10),
// so that a caller knows before it asks. No subject or address is in it, and no deny rule.
type PublishedPolicy struct {
	Require   []Requirement `json:"require"`
	Otherwise string        `json:"otherwise"`
}

// Requirement says what evidence a purpose needs; an empty list accepts any. Meeting it is necessary, not always enough.
type Requirement struct {
	Purpose   string   `json:"purpose"`
	Methods   []string `json:"methods"`
	Assurance []string `json:"assurance"`
	Issuers   []string `json:"issuers,omitempty"`
}

// Published returns the form of the policy for the card. A purpose that is open to all senders is not in it; one that some
// rule opens has the requirements of these rules together.
func (p AccessPolicy) Published() PublishedPolicy {
	published := PublishedPolicy{Require: []Requirement{}, Otherwise: OtherwiseForbidden}
	if p.Access == AccessVerified {
		published.Otherwise = OtherwiseUnauthorized
	}

	for _, purpose := range p.purposes() {
		if needs, open := p.requirement(purpose); !open {
			published.Require = append(published.Require, needs)
		}
	}
	return published
}

// purposes returns message, then the others in order of their rules.
func (p AccessPolicy) purposes() []string {
	list := []string{PurposeMessage}
	for _, rule := range p.Rules {
		for _, purpose := range rule.Purposes {
			if rule.Effect == EffectAllow && !slices.Contains(list, purpose) {
				list = append(list, purpose)
			}
		}
	}
	return list
}

func (p AccessPolicy) requirement(purpose string) (needs Requirement, open bool) {
	needs = Requirement{Purpose: purpose, Methods: []string{}, Assurance: []string{}}
	if purpose == PurposeMessage && p.Access != AccessRules {
		return needs, p.Access == AccessPublic
	}

	var methods, assurance, issuers union
	for _, rule := range p.Rules {
		if rule.Effect != EffectAllow || !rule.serves(purpose) {
			continue
		}
		if rule.anyone() && rule.Address == "" {
			return needs, true
		}
		methods.add(one(rule.Method)...)
		assurance.add(rule.Assurance...)
		issuers.add(one(canonicalOr(rule.Issuer))...)
	}

	needs.Methods, needs.Assurance, needs.Issuers = methods.list(), assurance.list(), issuers.list()
	return needs, false
}

// canonicalOr returns an issuer as evidence names it; of one that Validate refuses, what is written.
func canonicalOr(issuer string) string {
	if canonical, err := CanonicalIssuer(issuer); err == nil {
		return canonical
	}
	return issuer
}

func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// union collects what several rules accept; a rule that accepts anything makes all of it anything.
type union struct {
	entries  []string
	anything bool
}

func (u *union) add(entries ...string) {
	u.anything = u.anything || len(entries) == 0
	for _, entry := range entries {
		if !slices.Contains(u.entries, entry) {
			u.entries = append(u.entries, entry)
		}
	}
}

func (u *union) list() []string {
	if u.anything || u.entries == nil {
		return []string{}
	}
	return u.entries
}

// addressGlob is a pattern over addresses, @local@domain. In the local part * stands for any text, none included. The
// domain may begin with labels *, each standing for exactly one label, or with one ** for one label or more.
type addressGlob struct {
	local  string
	stars  int    // leading labels *
	any    bool   // a leading label **
	domain string // canonical rest; empty = none
}

func parseAddressGlob(pattern string) (addressGlob, error) {
	local, domain, found := strings.Cut(strings.TrimPrefix(pattern, "@"), "@")
	if !found || local == "" || domain == "" || len(pattern) > MaxAddressBytes {
		return addressGlob{}, fmt.Errorf("address: want @user@domain with * in it, got %q", printable(pattern))
	}

	glob := addressGlob{local: local}
	for domain != "" {
		label, rest, _ := strings.Cut(domain, ".")
		if label == "**" && glob.stars == 0 && !glob.any {
			glob.any = true
		} else if label == "*" && !glob.any {
			glob.stars++
		} else {
			break
		}
		domain = rest
	}

	return glob.withDomain(domain)
}

func (g addressGlob) withDomain(domain string) (addressGlob, error) {
	if domain == "" {
		return g, nil
	}
	canonical, err := ParseDomain(domain)
	if err != nil {
		return addressGlob{}, fmt.Errorf("address: * matches whole labels at the front of a domain, or the domain is invalid: %q", printable(domain))
	}
	g.domain = canonical
	return g, nil
}

// matches compares local parts exactly, or without regard to case with fold.
func (g addressGlob) matches(a Address, fold bool) bool {
	local, pattern := a.Local, g.local
	if fold {
		local, pattern = strings.ToLower(local), strings.ToLower(pattern)
	}
	return matchStars(pattern, local) && g.matchesDomain(a.Domain)
}

func (g addressGlob) matchesDomain(domain string) bool {
	front, found := strings.CutSuffix(domain, g.domain)
	if !found {
		return false
	}

	if g.domain != "" && front != "" {
		if front, found = strings.CutSuffix(front, "."); !found {
			return false
		}
	}
	if front == "" {
		return g.stars == 0 && !g.any
	}
	return g.any || strings.Count(front, ".")+1 == g.stars
}

// matchStars matches * against any text in linear time for each star.
func matchStars(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == text
	}

	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}

	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = after
	}

	return true
}

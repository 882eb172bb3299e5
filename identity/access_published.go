package identity

import "slices"

// What a caller can do about a closed purpose, in the card.
const (
	OtherwiseUnauthorized = "unauthorized" // come again with evidence
	OtherwiseForbidden    = "forbidden"    // ask the operator
)

// PublishedPolicy is what the card says about an AccessPolicy, key mentionable.identity_policy (message contract, section 10),
// so that a caller knows before it asks. Nobody's subject or address is in it, and no deny rule.
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

// Published returns the form of the policy for the card. A purpose that is open to everybody is not in it; one that some
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

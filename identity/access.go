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
	AccessVerified = "verified" // anyone with evidence that is believed
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

// Rule lets somebody in or keeps them out. Empty fields match everything; of several fields one piece of evidence must
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
	// local part is * alone, for its domain. A deny
	// rule believes the address as it is stated, without regard to case: a lie may only harm the liar.
	Address string
}

// AccessPolicy says who may use an agent for what. The rules are asked in order, the first match decides
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
		if purpose != PurposeMessage && (!isTool || tool == "") && (!isSkill || skill == "") {
			return fmt.Errorf("purposes: want %s, tool:<name> or skill:<id>, got %q", PurposeMessage, purpose)
		}
	}
	return nil
}

func checkSubjectPattern(pattern string) error {
	prefix, star := strings.CutSuffix(pattern, "*")
	if strings.Contains(prefix, "*") || star && !endsAtSeparator(prefix) {
		return fmt.Errorf("subject: * stands at the end after a separator (one of / : # ? = @), got %q", pattern)
	}
	return nil
}

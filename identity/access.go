package identity

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

// Rule lets somebody in or keeps them out. Empty fields match everything; of several fields all must match.
type Rule struct {
	Effect    string   // EffectAllow or EffectDeny
	Purposes  []string // PurposeMessage, "tool:<name>", "skill:<id>"; empty = PurposeMessage
	Issuer    string   // canonical
	Method    string
	Subject   string   // exact, or a literal prefix that ends at a separator, then *
	Assurance []string // one of these
	Address   string   // glob over the sender's address; counts only with evidence that vouches for the address
}

// AccessPolicy says who may use an agent for what. The rules are asked in order, the first match decides
// (message contract, section 10).
type AccessPolicy struct {
	Access string
	Rules  []Rule
}

package identity

import "slices"

// Covers reports whether the operator's list lets an issuer vouch for what the evidence says. It checks no proof: it is for
// evidence that this server makes itself, about somebody whom a connector named that proved itself in another way.
func (v *Validator) Covers(evidence Evidence) bool {
	issuer, err := CanonicalIssuer(evidence.Issuer)
	return err == nil && !v.own[issuer] && slices.ContainsFunc(v.trust.of(issuer, v.now()), func(entry TrustedIssuer) bool {
		return entry.covers(&evidence) && (len(evidence.OnBehalfOf) == 0 || entry.AllowDelegated)
	})
}

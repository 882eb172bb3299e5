package email

import "context"

// dmarcResult is the outcome of RFC 9989 for one mail.
type dmarcResult struct {
	Result string `json:"result"`           // none, pass, fail, temperror
	Policy string `json:"policy,omitempty"` // what the owner of the domain asks for
	Domain string `json:"domain,omitempty"` // where the record stands
	By     string `json:"by,omitempty"`     // dkim, spf: what passed aligned

	signature *dkimSignature // the aligned signature, with or without a record
	trouble   bool           // a DNS failure may hide a pass
}

// dmarcPolicy is the record that rules a From domain; found is false when there is none.
type dmarcPolicy struct {
	found  bool
	record foundRecord
	policy string
	org    string
	err    error
}

// lookupPolicy finds the record and the policy for a From domain.
func (a *Adapter) lookupPolicy(ctx context.Context, domain string) dmarcPolicy {
	walked, err := a.walk(ctx, domain)
	if err != nil {
		return dmarcPolicy{err: err}
	}
	result := dmarcPolicy{org: organizational(domain, walked)}
	record, ok := policyRecord(domain, walked)
	if !ok {
		return result
	}
	inherited, missing := record.name != domain, false
	if inherited && record.record.nonexistent != "" {
		exists, err := a.dns.Exists(ctx, domain)
		if err != nil {
			return dmarcPolicy{err: err}
		}
		missing = !exists
	}
	result.record = record
	result.policy, result.found = record.record.policyFor(inherited, missing)
	return result
}

// evaluate joins policy, signatures and SPF.
func (a *Adapter) evaluate(ctx context.Context, from string, policy dmarcPolicy, signatures []dkimSignature, envelope spfResult) dmarcResult {
	switch {
	case policy.err != nil:
		return a.evaluateWithout(from, signatures, dmarcResult{Result: resultTempError, trouble: true})
	case !policy.found:
		return a.evaluateWithout(from, signatures, dmarcResult{Result: resultNone})
	}
	result := dmarcResult{Result: resultFail, Policy: policy.policy, Domain: policy.record.name}
	for i := range signatures {
		a.considerSignature(ctx, &result, from, policy, &signatures[i])
	}
	a.considerSPF(ctx, &result, from, policy, envelope)
	return result
}

// evaluateWithout looks for an aligned signature when there is no record to follow.
func (a *Adapter) evaluateWithout(from string, signatures []dkimSignature, result dmarcResult) dmarcResult {
	for i, one := range signatures {
		// While the record is out of reach it may demand strict alignment, so only the very same domain counts.
		aligned := one.Domain == from || (result.Result == resultNone && sameRegistered(one.Domain, from))
		if one.Result == resultPass && aligned && result.signature == nil {
			result.signature = &signatures[i]
		}
		result.trouble = result.trouble || (one.Result == resultTempError && aligned)
	}
	return result
}

func (a *Adapter) considerSignature(ctx context.Context, result *dmarcResult, from string, policy dmarcPolicy, one *dkimSignature) {
	if result.signature != nil || (one.Result != resultPass && one.Result != resultTempError) {
		return
	}
	aligned, err := a.aligned(ctx, from, policy.org, one.Domain, policy.record.record.strictDKIM)
	switch {
	case err != nil:
		result.trouble = true
	case aligned && one.Result == resultTempError:
		result.trouble = true
	case aligned:
		result.Result, result.By, result.signature = resultPass, "dkim", one
	}
}

func (a *Adapter) considerSPF(ctx context.Context, result *dmarcResult, from string, policy dmarcPolicy, envelope spfResult) {
	if result.Result == resultPass || (envelope.Result != resultPass && envelope.Result != resultTempError) {
		return
	}
	aligned, err := a.aligned(ctx, from, policy.org, envelope.Domain, policy.record.record.strictSPF)
	switch {
	case err != nil:
		result.trouble = true
	case aligned && envelope.Result == resultTempError:
		result.trouble = true
	case aligned:
		result.Result, result.By = resultPass, "spf"
	}
}

// aligned compares an authenticated domain with the From domain (RFC 9989, section 4.10.2): equal, or in relaxed
// mode of the same organization, each side found by its own tree walk.
func (a *Adapter) aligned(ctx context.Context, from, organization, domain string, strict bool) (bool, error) {
	if domain == from {
		return true, nil
	}
	if strict || domain == "" {
		return false, nil
	}
	walked, err := a.walk(ctx, domain)
	if err != nil {
		return false, err
	}
	return organizational(domain, walked) == organization, nil
}

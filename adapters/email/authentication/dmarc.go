package authentication

import (
	"context"
	"net/url"
	"strings"

	"golang.org/x/net/publicsuffix"

	"inbox/adapters/email/dns"
)

// Policies of a DMARC record.
const (
	PolicyNone       = "none"
	PolicyQuarantine = "quarantine"
	PolicyReject     = "reject"
)

// Record is one record by RFC 9989, section 4.7. A policy that is absent or invalid is empty.
type Record struct {
	policy, subdomains, nonexistent string
	strictDKIM, strictSPF           bool
	suffix                          byte // psd: y, n or u
	testing                         bool
	reports                         bool // a usable rua is present
	damaged                         bool // sp or np is there with an unknown value
}

// parseDMARC reads a TXT record. v=DMARC1 must come first and is case-sensitive; unknown and removed tags are ignored; of a
// repeated tag the first counts. The library reads records of RFC 7489, loses whole records for one value, and evaluates
// nothing (TestRecordsOfRFC9989).
func parseDMARC(text string) (Record, bool) {
	record := Record{suffix: 'u'}
	first, rest, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(first, "=")
	if !strings.EqualFold(strings.TrimSpace(name), "v") || strings.TrimSpace(value) != "DMARC1" {
		return record, false
	}

	seen := map[string]bool{}
	for pair := range strings.SplitSeq(rest, ";") {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		record.set(name, strings.TrimSpace(value))
	}

	return record, true
}

func (r *Record) set(name, value string) {
	lower := strings.ToLower(value)
	switch name {
	case "p":
		r.policy = knownPolicy(lower)
	case "sp":
		r.subdomains = knownPolicy(lower)
		r.damaged = r.damaged || r.subdomains == ""

	case "np":
		r.nonexistent = knownPolicy(lower)
		r.damaged = r.damaged || r.nonexistent == ""

	case "adkim":
		r.strictDKIM = lower == "s"
	case "aspf":
		r.strictSPF = lower == "s"
	case "psd":
		if lower == "y" || lower == "n" {
			r.suffix = lower[0]
		}

	case "t":
		r.testing = lower == "y"
	case "rua":
		r.reports = usableReports(value)
	}
}

func knownPolicy(value string) string {
	switch value {
	case PolicyNone, PolicyQuarantine, PolicyReject:
		return value
	}
	return ""
}

func usableReports(value string) bool {
	for one := range strings.SplitSeq(value, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && strings.EqualFold(u.Scheme, "mailto") && strings.Contains(u.Opaque, "@") {
			return true
		}
	}
	return false
}

// policyFor returns the policy that the record sets for a domain: its own, or an inherited one. A record without a valid p,
// or with an invalid sp or np, wants reports at most; ok is false when it does not even want those (RFC 9989, section
// 4.10.1).
func (r Record) policyFor(inherited, nonexistent bool) (policy string, ok bool) {
	if r.policy == "" || r.damaged {
		return PolicyNone, r.reports
	}

	chain := []string{r.policy}
	if inherited {
		chain = []string{r.subdomains, r.policy}
	}

	if inherited && nonexistent {
		chain = []string{r.nonexistent, r.subdomains, r.policy}
	}

	for _, one := range chain {
		if one != "" {
			return r.lowered(one), true
		}
	}

	return PolicyNone, true
}

// lowered applies t=y: one step below.
func (r Record) lowered(policy string) string {
	if !r.testing {
		return policy
	}
	if policy == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}

// foundRecord is a record met on a tree walk.
type foundRecord struct {
	name   string
	record Record
}

// maxWalkLabels is where a long name is cut (RFC 9989, section 4.10).
const maxWalkLabels = 7

// walkNames returns the at most eight names of a tree walk.
func walkNames(domain string) []string {
	names := []string{domain}
	labels := strings.Split(domain, ".")
	if len(labels) > maxWalkLabels {
		labels = labels[len(labels)-maxWalkLabels:]
	} else {
		labels = labels[1:]
	}

	for ; len(labels) > 0; labels = labels[1:] {
		names = append(names, strings.Join(labels, "."))
	}

	return names
}

// walk collects the DMARC records from a domain up to its root, ending at one with psd.
func (c *Checker) walk(ctx context.Context, domain string) ([]foundRecord, error) {
	var found []foundRecord
	for _, name := range walkNames(domain) {
		record, ok, err := c.dmarcAt(ctx, name)
		if err != nil {
			return nil, err
		}

		if !ok {
			continue
		}

		found = append(found, foundRecord{name, record})
		if record.suffix != 'u' {
			break
		}
	}

	return found, nil
}

// dmarcAt returns the one DMARC record of a name; several are as good as none.
func (c *Checker) dmarcAt(ctx context.Context, name string) (Record, bool, error) {
	texts, err := c.resolver.LookupTXT(ctx, "_dmarc."+name)
	if dns.NotFound(err) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}

	var records []Record
	for _, text := range texts {
		if record, ok := parseDMARC(text); ok {
			records = append(records, record)
		}
	}

	if len(records) != 1 {
		return Record{}, false, nil
	}

	return records[0], true, nil
}

// isSuffix reports whether strangers register names below the domain of the record: it is marked so itself (psd=y), or the public
// suffix list does. Registries publish records without psd, and with the tree walk alone all their customers would be one
// organization, each aligned with every other.
func (f foundRecord) isSuffix() bool {
	if f.record.suffix != 'u' {
		return f.record.suffix == 'y'
	}
	suffix, managed := publicsuffix.PublicSuffix(f.name)
	return suffix == f.name && (managed || strings.Contains(f.name, ".")) // an unknown single label is a private network
}

// organizational returns the organizational domain of the walk's start (RFC 9989, section 4.10.2).
func organizational(start string, found []foundRecord) string {
	if len(found) == 0 {
		return start
	}
	last := found[len(found)-1]
	if last.isSuffix() && last.name != start {
		labels := strings.Split(start, ".")
		return strings.Join(labels[len(labels)-strings.Count(last.name, ".")-2:], ".")
	}
	return last.name
}

// policyRecord picks the record that rules the start of the walk: its own, its organization's, its suffix's.
func policyRecord(start string, found []foundRecord) (foundRecord, bool) {
	for _, name := range []string{start, organizational(start, found)} {
		for _, one := range found {
			if one.name == name {
				return one, true
			}
		}
	}

	if len(found) > 0 && found[len(found)-1].isSuffix() {
		return found[len(found)-1], true
	}

	return foundRecord{}, false
}

// SameRegistered reports whether two domains have the same registered domain by the public suffix list. It serves only
// where no DMARC record exists.
func SameRegistered(a, b string) bool {
	if a == b {
		return true
	}
	one, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(strings.TrimSuffix(a, ".")))
	if err != nil {
		return false
	}
	other, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(strings.TrimSuffix(b, ".")))
	return err == nil && one == other
}

// DMARC is the outcome of RFC 9989 for one mail.
type DMARC struct {
	Result string `json:"result"`           // none, pass, fail, temperror
	Policy string `json:"policy,omitempty"` // what the owner of the domain asks for
	Domain string `json:"domain,omitempty"` // of the record
	By     string `json:"by,omitempty"`     // dkim, spf: what passed aligned

	Signatures []*Signature `json:"-"` // the aligned signatures that passed, topmost first, with or without a record
	Envelope   string       `json:"-"` // Pass or TempError of SPF for a domain that is aligned, with or without a record
	Trouble    bool         `json:"-"` // a DNS failure may hide a pass
	Record     Record       `json:"-"` // as read; empty when there is none
	Err        error        `json:"-"` // of the lookup of the record
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
func (c *Checker) lookupPolicy(ctx context.Context, domain string) dmarcPolicy {
	walked, err := c.walk(ctx, domain)
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
		exists, err := c.resolver.Exists(ctx, domain)
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
func (c *Checker) evaluate(ctx context.Context, from string, policy dmarcPolicy, signatures []Signature, envelope SPF) DMARC {
	switch {
	case policy.err != nil:
		return evaluateWithout(from, signatures, envelope, DMARC{Result: TempError, Trouble: true, Err: policy.err})
	case !policy.found:
		return evaluateWithout(from, signatures, envelope, DMARC{Result: None})
	}

	result := DMARC{Result: Fail, Policy: policy.policy, Domain: policy.record.name, Record: policy.record.record}
	for i := range signatures {
		c.considerSignature(ctx, &result, from, policy, &signatures[i])
	}

	c.considerSPF(ctx, &result, from, policy, envelope)
	return result
}

// evaluateWithout looks for aligned identifiers when there is no record to follow.
func evaluateWithout(from string, signatures []Signature, envelope SPF, result DMARC) DMARC {
	// While the record is out of reach it may demand strict alignment, so only the very same domain counts.
	aligned := func(domain string) bool {
		return domain == from || result.Result == None && SameRegistered(domain, from)
	}

	for i := range signatures {
		switch one := &signatures[i]; {
		case !aligned(one.Domain):
		case one.Result == Pass:
			result.Signatures = append(result.Signatures, one)
		case one.Result == TempError:
			result.Trouble = true
		}
	}

	if (envelope.Result == Pass || envelope.Result == TempError) && aligned(envelope.Domain) {
		result.Envelope = envelope.Result
	}
	return result
}

func (c *Checker) considerSignature(ctx context.Context, result *DMARC, from string, policy dmarcPolicy, one *Signature) {
	if one.Result != Pass && one.Result != TempError {
		return
	}

	aligned, err := c.aligned(ctx, from, policy.org, one.Domain, policy.record.record.strictDKIM)
	switch {
	case err != nil:
		result.Trouble = true
	case aligned && one.Result == TempError:
		result.Trouble = true
	case aligned:
		result.Result, result.By, result.Signatures = Pass, "dkim", append(result.Signatures, one)
	}
}

func (c *Checker) considerSPF(ctx context.Context, result *DMARC, from string, policy dmarcPolicy, envelope SPF) {
	if envelope.Result != Pass && envelope.Result != TempError {
		return
	}

	aligned, err := c.aligned(ctx, from, policy.org, envelope.Domain, policy.record.record.strictSPF)
	switch {
	case err != nil:
		result.Envelope = TempError
	case aligned:
		result.Envelope = envelope.Result
	}

	switch {
	case result.Result == Pass:
	case result.Envelope == TempError:
		result.Trouble = true
	case result.Envelope == Pass:
		result.Result, result.By = Pass, "spf"
	}
}

// aligned compares an authenticated domain with the From domain (RFC 9989, section 4.10.2): equal, or in relaxed
// mode of the same organization, each side found by its own tree walk.
func (c *Checker) aligned(ctx context.Context, from, organization, domain string, strict bool) (bool, error) {
	if domain == from {
		return true, nil
	}

	if strict || domain == "" {
		return false, nil
	}

	walked, err := c.walk(ctx, domain)
	if err != nil {
		return false, err
	}

	return organizational(domain, walked) == organization, nil
}

package email

import (
	"context"
	"net/url"
	"strings"

	"golang.org/x/net/publicsuffix"

	"inbox/adapters/email/dns"
)

// Policies of a DMARC record.
const (
	policyNone       = "none"
	policyQuarantine = "quarantine"
	policyReject     = "reject"
)

// dmarcRecord is one record by RFC 9989, section 4.7. A policy that is absent or invalid is empty.
type dmarcRecord struct {
	policy, subdomains, nonexistent string
	strictDKIM, strictSPF           bool
	suffix                          byte // psd: y, n or u
	testing                         bool
	reports                         bool // a usable rua is present
	damaged                         bool // sp or np is there and says nothing that is known
}

// parseDMARC reads a TXT record. v=DMARC1 must come first and is case-sensitive; unknown and removed tags are
// ignored; of a repeated tag the first counts.
func parseDMARC(text string) (dmarcRecord, bool) {
	record := dmarcRecord{suffix: 'u'}
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

func (r *dmarcRecord) set(name, value string) {
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
	case policyNone, policyQuarantine, policyReject:
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

// policyFor gives the policy that the record sets for a domain: its own, or an inherited one. A record without a valid p,
// or with an invalid sp or np, wants reports at most; ok is false when it does not even want those (RFC 9989, section
// 4.10.1).
func (r dmarcRecord) policyFor(inherited, nonexistent bool) (policy string, ok bool) {
	if r.policy == "" || r.damaged {
		return policyNone, r.reports
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
	return policyNone, true
}

// lowered applies t=y: one step below.
func (r dmarcRecord) lowered(policy string) string {
	if !r.testing {
		return policy
	}
	if policy == policyReject {
		return policyQuarantine
	}
	return policyNone
}

// foundRecord is a record met on a tree walk.
type foundRecord struct {
	name   string
	record dmarcRecord
}

// maxWalkLabels is where a long name is cut (RFC 9989, section 4.10).
const maxWalkLabels = 7

// walkNames gives the at most eight names of a tree walk.
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

// walk collects the DMARC records from a domain up to its root, ending at one that says what it is (psd).
func (a *Adapter) walk(ctx context.Context, domain string) ([]foundRecord, error) {
	var found []foundRecord
	for _, name := range walkNames(domain) {
		record, ok, err := a.dmarcAt(ctx, name)
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

// dmarcAt gives the one DMARC record of a name; several are as good as none.
func (a *Adapter) dmarcAt(ctx context.Context, name string) (dmarcRecord, bool, error) {
	texts, err := a.dns.LookupTXT(ctx, "_dmarc."+name)
	if dns.NotFound(err) {
		return dmarcRecord{}, false, nil
	}
	if err != nil {
		return dmarcRecord{}, false, err
	}
	var records []dmarcRecord
	for _, text := range texts {
		if record, ok := parseDMARC(text); ok {
			records = append(records, record)
		}
	}
	if len(records) != 1 {
		return dmarcRecord{}, false, nil
	}
	return records[0], true, nil
}

// isSuffix reports whether strangers register names below the domain of the record: it says so itself (psd=y), or the public
// suffix list does. Registries publish records without psd, and with the tree walk alone all their customers would be one
// organization, each aligned with every other.
func (f foundRecord) isSuffix() bool {
	if f.record.suffix != 'u' {
		return f.record.suffix == 'y'
	}
	suffix, managed := publicsuffix.PublicSuffix(f.name)
	return suffix == f.name && (managed || strings.Contains(f.name, ".")) // an unknown single label is somebody's own network
}

// organizational gives the organizational domain of the walk's start (RFC 9989, section 4.10.2).
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

// sameRegistered says whether two domains have the same registered domain by the public suffix list. It serves only
// where no DMARC record exists.
func sameRegistered(a, b string) bool {
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

package email

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/email/dns"
)

// Modes of an MTA-STS policy (RFC 8461, section 5).
const (
	stsNone    = "none"
	stsTesting = "testing"
	stsEnforce = "enforce"
)

const (
	maxPolicyBytes = 64 << 10
	maxPolicyHosts = 200
	maxPolicyAge   = 365 * 24 * time.Hour // RFC 8461, section 3.2
	maxPolicyID    = 32

	lettersAndDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// stsPolicy says how a domain wants to be reached. The zero value demands nothing.
type stsPolicy struct {
	mode   string
	hosts  []string // lower-case names; "*." in front stands for one label
	maxAge time.Duration
	dane   *danePolicy // of one server, in the place of the domain's policy; nil = none
}

func (p stsPolicy) enforced() bool { return p.mode == stsEnforce }

// demandsTLS says whether nothing may be sent in the clear.
func (p stsPolicy) demandsTLS() bool { return p.enforced() || p.dane != nil }

// names says whether the policy lists a mail server (RFC 8461, section 4.1).
func (p stsPolicy) names(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, parent, _ := strings.Cut(host, ".")
	for _, pattern := range p.hosts {
		if suffix, wild := strings.CutPrefix(pattern, "*."); wild && parent != "" && suffix == parent || pattern == host {
			return true
		}
	}
	return false
}

var errPolicy = errors.New("not an MTA-STS policy")

// parsePolicy reads a policy file (RFC 8461, section 3.2). Of a field that stands twice the first counts; unknown fields
// are of no meaning.
func parsePolicy(text []byte) (stsPolicy, error) {
	if len(text) > maxPolicyBytes {
		return stsPolicy{}, fmt.Errorf("%w: larger than 64 KiB", errPolicy)
	}
	policy := stsPolicy{maxAge: -1}
	version := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		name, value, found := strings.Cut(strings.Trim(line, " \t\r"), ":")
		value = strings.Trim(value, " \t")
		switch {
		case !found && name == "":
		case !found:
			return stsPolicy{}, fmt.Errorf("%w: a line is no field", errPolicy)
		case name == "version" && version == "":
			version = value
		case name == "mode" && policy.mode == "":
			policy.mode = value
		case name == "max_age" && policy.maxAge < 0:
			seconds, err := strconv.ParseUint(value, 10, 40)
			if err != nil || len(value) > 10 {
				return stsPolicy{}, fmt.Errorf("%w: max_age is no number of seconds", errPolicy)
			}
			policy.maxAge = min(time.Duration(seconds)*time.Second, maxPolicyAge)
		case name == "mx" && len(policy.hosts) < maxPolicyHosts:
			if !policyHost(value) {
				return stsPolicy{}, fmt.Errorf("%w: mx is no host name", errPolicy)
			}
			policy.hosts = append(policy.hosts, strings.ToLower(value))
		}
	}
	switch {
	case version != "STSv1":
		return stsPolicy{}, fmt.Errorf("%w: version is not STSv1", errPolicy)
	case policy.maxAge < 0:
		return stsPolicy{}, fmt.Errorf("%w: no max_age", errPolicy)
	case policy.mode != stsNone && policy.mode != stsTesting && policy.mode != stsEnforce:
		return stsPolicy{}, fmt.Errorf("%w: mode is unknown", errPolicy)
	case policy.mode != stsNone && len(policy.hosts) == 0:
		return stsPolicy{}, fmt.Errorf("%w: no mx", errPolicy)
	}
	return policy, nil
}

func policyHost(text string) bool {
	name := strings.TrimPrefix(text, "*.")
	if name == "" || len(name) > 253 || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
		return false
	}

	return strings.Trim(name, lettersAndDigits+"-._") == ""
}

// policyID reads the TXT records at _mta-sts.<domain>; empty = the domain announces no policy (RFC 8461, section 3.1).
func policyID(records []string) string {
	found := ""
	for _, text := range records {
		version, rest, _ := strings.Cut(text, ";")
		if strings.TrimSpace(version) != "v=STSv1" {
			continue
		}
		if found != "" {
			return "" // several records count as none
		}
		if found = dns.Tags(rest)["id"]; !plainID(found) {
			return ""
		}
	}
	return found
}

func plainID(id string) bool {
	return id != "" && len(id) <= maxPolicyID && strings.Trim(id, lettersAndDigits) == ""
}

// Package moderation decides who is kept out, who sends too much and who wants to hear nothing any more: the operator's
// lists of hosts, addresses and actors, counters of limits and budgets, stop words. It knows no protocol and no SQL, and
// it answers from memory: what other nodes and commands change arrives within seconds. It does not say how a refusal
// sounds on the wire; adapters do.
package moderation

import (
	"net/netip"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// MaxTargetBytes bounds a target in its canonical form.
const MaxTargetBytes = 2048

// unverified stands in place of the issuer in the principal of a sender who proved nothing.
const unverified = "unverified"

// subdomains stands in front of a domain that covers everything below it, too.
const subdomains = "*."

// ParseTarget reads what an operator wrote and returns its kind and canonical form: a host (example.com), a domain with
// everything below it (*.example.com), an address (@user@example.com), an actor's IRI or another subject of evidence
// (https://…, mailto:…, token:…), or a principal (issuer, a blank, subject). Errors are fault.Malformed.
func ParseTarget(text string) (kind, target string, err error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "" || len(text) > MaxTargetBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "", "", fault.New(fault.Malformed, "write a host, an address, an actor's address or a principal")
	case strings.Contains(text, " "):
		return parsePrincipal(text)
	case strings.Contains(text, "://"):
		return parseActor(text)
	case hasScheme(text, "mailto"), hasScheme(text, "acct"):
		return parseUser(text[strings.IndexByte(text, ':')+1:], text)
	case hasScheme(text, "token"), hasScheme(text, "did"):
		return exchange.TargetActor, canonicalSubject(text), nil
	case strings.Contains(text, "@"):
		return parseUser(text, text)
	}

	host, err := ParseHost(strings.TrimSuffix(text, "/"))
	return exchange.TargetHost, host, err
}

func hasScheme(text, scheme string) bool {
	return len(text) > len(scheme) && text[len(scheme)] == ':' && strings.EqualFold(text[:len(scheme)], scheme)
}

// parsePrincipal takes a principal as messages show it: the issuer, a space and the subject, or "unverified" and an address.
func parsePrincipal(text string) (kind, target string, err error) {
	issuer, subject, _ := strings.Cut(text, " ")
	subject = strings.TrimSpace(subject)
	if issuer == unverified {
		_, err = identity.ParseAddress(subject)
	} else if _, err = identity.CanonicalIssuer(issuer); err != nil && strings.HasPrefix(strings.ToLower(issuer), "https://") { // that of a login service may have a path
		_, _, err = parseActor(issuer)
	}
	if err != nil || !isSubject(issuer, subject) {
		return "", "", fault.Newf(fault.Malformed, "%q has a space and is no principal; copy one from inbox show, such as \"example.com https://example.com/users/user\"", text)
	}
	if strings.Contains(issuer, "://") { // of a login service, whose subjects need no scheme
		return exchange.TargetPrincipal, canonicalSubject(issuer) + " " + canonicalSubject(subject), nil
	}
	return exchange.TargetPrincipal, canonicalPrincipal(issuer + " " + subject), nil
}

// isSubject reports whether evidence of an issuer can have the subject: a web address, another address with a scheme, the address of a sender
// who proved nothing, or, of a login service, whose issuer is a web address, a text of its own. A line of a hosts file, and a host with a
// note, have none.
func isSubject(issuer, subject string) bool {
	switch {
	case subject == "" || strings.ContainsFunc(subject, unicode.IsSpace) || strings.HasPrefix(subject, "#"):
		return false
	case strings.Contains(issuer, "://"), issuer == unverified:
		return true
	}
	scheme, rest, _ := strings.Cut(subject, ":")
	return rest != "" && scheme != "" && !strings.ContainsAny(scheme, "./")
}

func parseUser(address, written string) (kind, target string, err error) {
	parsed, err := identity.ParseAddress(address)
	if err != nil {
		return "", "", fault.Newf(fault.Malformed, "%q is not an address; write one such as @user@example.com", written)
	}
	return exchange.TargetAddress, canonicalAddress(parsed), nil
}

// canonicalAddress compares both sides without case: the one who is kept out must not come back in capitals.
func canonicalAddress(a identity.Address) string { return strings.ToLower(a.String()) }

func parseActor(text string) (kind, target string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Host == "" {
		return "", "", fault.Newf(fault.Malformed, "%q is not a web address", text)
	}

	host, err := ParseHost(u.Host)
	if err != nil {
		return "", "", fault.Newf(fault.Malformed, "%q names no host", text)
	}
	if strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" {
		return exchange.TargetHost, host, nil // the front page of a server means the server
	}

	return exchange.TargetActor, canonicalSubject(u.String()), nil
}

// ParseHost returns the canonical form of a host as lists have it: punycode, lower-case, without a final dot, "*." kept.
// The errors are fault.Malformed.
func ParseHost(text string) (string, error) {
	rest, below := strings.CutPrefix(text, subdomains)
	domain, err := identity.ParseDomain(rest)
	_, literal := netip.ParseAddr(identity.HostOf(domain))
	switch {
	case err != nil:
		return "", fault.Newf(fault.Malformed, "%q is not a host; write one such as example.com, or *.example.com for all below it, too", text)
	case below && (literal == nil || identity.HostOf(domain) != domain):
		return "", fault.Newf(fault.Malformed, "%q: *. must precede a domain", text)
	case below:
		return subdomains + domain, nil
	}
	return withoutWebPort(domain), nil
}

package moderation

import (
	"net/netip"
	"net/url"
	"strings"

	"inbox/exchange"
	"inbox/identity"
)

// canonicalSubject is the form in which subjects of evidence are compared, on both sides: what lists have, and what senders prove. Scheme and
// host of a web address are written in small letters, without the port of their scheme and a slash at the end; http means the same server as
// https. Addresses are compared without case. Other subjects are opaque.
func canonicalSubject(subject string) string {
	scheme, rest, _ := strings.Cut(subject, ":")
	switch strings.ToLower(scheme) {
	case "mailto", "acct":
		return strings.ToLower(subject)
	case "did", "token":
		return strings.ToLower(scheme) + ":" + rest
	case "http", "https":
		u, err := url.Parse(subject)
		if err != nil || u.Host == "" {
			return subject
		}
		host, err := identity.ParseDomain(u.Host)
		if err != nil {
			return subject
		}
		u.Scheme, u.Host = "https", withoutWebPort(host)
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
		return u.String()
	}
	if strings.HasPrefix(subject, "@") {
		return strings.ToLower(subject)
	}
	return subject
}

// canonicalPrincipal is canonicalSubject for an issuer, a space and a subject.
func canonicalPrincipal(principal string) string {
	issuer, subject, _ := strings.Cut(principal, " ")
	if canonical, err := identity.CanonicalIssuer(issuer); err == nil {
		issuer = canonical
	} else {
		issuer = canonicalSubject(issuer)
	}
	return issuer + " " + canonicalSubject(subject)
}

// withoutWebPort takes the ports of http and https off a host: servers are named without them.
func withoutWebPort(host string) string {
	for _, port := range []string{":443", ":80"} {
		name, is := strings.CutSuffix(host, port)
		if _, err := netip.ParseAddr(strings.Trim(name, "[]")); is && err != nil { // an address without a name is that of a test
			return name
		}
	}
	return host
}

// keyOf is the form of an entry's target that is looked up. Entries of earlier versions may be stored in other forms.
func keyOf(e exchange.ListEntry) string {
	switch e.Kind {
	case exchange.TargetActor:
		return canonicalSubject(e.Target)
	case exchange.TargetPrincipal:
		return canonicalPrincipal(e.Target)
	case exchange.TargetHost:
		return withoutWebPort(e.Target)
	}
	return e.Target
}

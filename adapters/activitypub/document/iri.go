package document

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxIRIBytes bounds every id that we keep.
const MaxIRIBytes = 2048

// Origin returns scheme://host[:port] of an IRI in a comparable form: lower case, punycode, no default port. ok is
// false for anything but an http or https IRI without user info, blanks and control characters. Hosts are compared
// parsed and never as substrings: confusable and oddly written hosts let accounts be taken over (CVE-2023-42451).
func Origin(iri string) (text string, ok bool) {
	if len(iri) > MaxIRIBytes {
		return "", false
	}
	scheme, rest, found := strings.Cut(iri, "://")
	if !found || scheme != "https" && scheme != "http" {
		return "", false
	}

	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}

	for i := range len(rest) {
		if c := rest[i]; c <= ' ' || c == 0x7f || c == '\\' || c == '"' || c == '<' || c == '>' {
			return "", false
		}
	}

	host, ok := CanonicalHost(authority, scheme)
	if host == authority { // nearly always: no new string
		return iri[:len(scheme)+len("://")+len(authority)], ok
	}
	return scheme + "://" + host, ok
}

// Canonical converts the Unicode host of an IRI to punycode, because some servers use one spelling in their ids and the other in their
// signatures. It returns any other text unchanged.
func Canonical(iri string) string {
	scheme, rest, found := strings.Cut(iri, "://")
	if !found || scheme != "https" && scheme != "http" {
		return iri
	}

	end := len(rest)
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		end = at
	}
	for i := range end {
		if rest[i] >= utf8.RuneSelf {
			if origin, ok := Origin(iri); ok {
				return origin + rest[end:]
			}
			return iri
		}
	}
	return iri
}

// CanonicalHost returns host[:port] in lower case and punycode, without a final dot and without the scheme's port.
func CanonicalHost(authority, scheme string) (string, bool) {
	if authority == "" || strings.IndexByte(authority, '@') >= 0 || strings.IndexByte(authority, '%') >= 0 {
		return "", false
	}
	whole, host, port := authority, authority, ""
	if colon := strings.LastIndexByte(authority, ':'); colon > strings.LastIndexByte(authority, ']') {
		host, port = authority[:colon], authority[colon+1:]
		if !isPort(port) {
			return "", false
		}
	}

	if literal, isLiteral := strings.CutPrefix(host, "["); isLiteral {
		if address, err := netip.ParseAddr(strings.TrimSuffix(literal, "]")); err != nil || !address.Is6() || "["+address.String()+"]" != host {
			return "", false
		}
	} else if !plainHost(host) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", false
		}
		host = ascii
	}

	host = strings.TrimSuffix(host, ".")
	if host == "" {
		return "", false
	}
	if port == "" || scheme == "https" && port == "443" || scheme == "http" && port == "80" {
		return host, true
	}
	if len(host)+1+len(port) == len(whole) && whole[:len(host)] == host {
		return whole, true
	}
	return host + ":" + port, true
}

func isPort(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != "" && len(text) <= 5
}

// plainHost reports whether a host is already lower-case ASCII without anything that IDNA would change.
func plainHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		if c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return host != "" && !strings.Contains(host, "--")
}

// HostOf returns the host[:port] of an IRI in comparable form; empty when it is none.
func HostOf(iri string) string {
	text, ok := Origin(iri)
	if !ok {
		return ""
	}
	return text[strings.Index(text, "://")+3:]
}

// SameOrigin reports whether two IRIs have one origin.
func SameOrigin(one, other string) bool {
	a, ok := Origin(one)
	if !ok {
		return false
	}
	b, ok := Origin(other)
	return ok && a == b
}

// WithoutFragment cuts #… off.
func WithoutFragment(iri string) string {
	bare, _, _ := strings.Cut(iri, "#")
	return bare
}

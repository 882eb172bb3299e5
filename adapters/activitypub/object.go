package activitypub

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// maxListed is how many recipients, tags or attachments of one document are looked at.
const maxListed = 200

// str gives a string member; empty when it is absent or something else.
func str(o object, name string) string {
	text, _ := o[name].(string)
	return text
}

// listed reads a member that may be absent, one value or a list of them.
func listed(value any) []any {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		return v[:min(len(v), maxListed)]
	}
	return []any{value}
}

// reference reads the IRI of a member that may be an IRI, an object with an id, or a list of which the first counts.
func reference(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case object:
		return str(v, "id")
	case []any:
		if len(v) > 0 {
			if _, nested := v[0].([]any); !nested {
				return reference(v[0])
			}
		}
	}
	return ""
}

// references reads all IRIs of a member.
func references(value any) []string {
	if text, single := value.(string); single {
		return []string{text}
	}
	var iris []string
	for _, item := range listed(value) {
		if iri := reference(item); iri != "" {
			iris = append(iris, iri)
		}
	}
	return iris
}

// embedded reads a member that may be an object or a list that begins with one; nil otherwise.
func embedded(value any) object {
	switch v := value.(type) {
	case object:
		return v
	case []any:
		if len(v) > 0 {
			first, _ := v[0].(object)
			return first
		}
	}
	return nil
}

// isA says whether the document's type is, or lists, one of the types.
func isA(o object, types ...string) bool {
	if own, single := o["type"].(string); single {
		return slices.Contains(types, own)
	}
	for _, own := range references(o["type"]) {
		if slices.Contains(types, own) {
			return true
		}
	}
	return false
}

// kindOf gives the type, or the first of several.
func kindOf(o object) string { return reference(o["type"]) }

// maxIRIBytes bounds every id that we keep.
const maxIRIBytes = 2048

// origin gives scheme://host[:port] of an IRI in a comparable form: lower case, punycode, no default port. ok is
// false for anything but an http or https IRI without user info, blanks and control characters. Hosts are compared
// parsed and never as substrings: confusable and oddly written hosts let accounts be taken over (CVE-2023-42451).
func origin(iri string) (text string, ok bool) {
	if len(iri) > maxIRIBytes {
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
	host, ok := canonicalHost(authority, scheme)
	if host == authority { // nearly always: no new string
		return iri[:len(scheme)+len("://")+len(authority)], ok
	}
	return scheme + "://" + host, ok
}

// canonicalHost gives host[:port] in lower case and punycode, without a final dot and without the scheme's port.
func canonicalHost(authority, scheme string) (string, bool) {
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

// plainHost says that a host is already lower-case ASCII without anything that IDNA would change.
func plainHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		if c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return host != "" && !strings.Contains(host, "--")
}

// hostOf gives the host[:port] of an IRI in comparable form; empty when it is none.
func hostOf(iri string) string {
	text, ok := origin(iri)
	if !ok {
		return ""
	}
	return text[strings.Index(text, "://")+3:]
}

func sameOrigin(one, other string) bool {
	a, ok := origin(one)
	if !ok {
		return false
	}
	b, ok := origin(other)
	return ok && a == b
}

// withoutFragment cuts #… off.
func withoutFragment(iri string) string {
	bare, _, _ := strings.Cut(iri, "#")
	return bare
}

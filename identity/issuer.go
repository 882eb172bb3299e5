package identity

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

const didWeb = "did:web:"

// ErrIssuer is what every refused issuer wraps.
var ErrIssuer = errors.New("invalid issuer")

// CanonicalIssuer returns the one form under which an issuer is compared: a lower-case host name, with its port unless that
// is 443, or a did:web with a lower-case host. "https://A.example/" and "a.example" are the same issuer; a host and its
// did:web are two. Errors wrap ErrIssuer.
func CanonicalIssuer(text string) (string, error) {
	if len(text) > maxIRIBytes {
		return "", fmt.Errorf("%w: over %d bytes", ErrIssuer, maxIRIBytes)
	}
	if strings.HasPrefix(text, didWeb) {
		did, err := parseDIDWeb(text)
		if err != nil {
			return "", err
		}
		return did.String(), nil
	}
	host := strings.TrimSuffix(trimScheme(text), "/")
	domain, err := ParseDomain(host)
	if err != nil {
		return "", fmt.Errorf("%w: want a host, https://host or did:web:host, got %q", ErrIssuer, text)
	}
	return trimPort(domain), nil
}

// trimPort takes the port of https off.
func trimPort(domain string) string {
	if host, port, err := net.SplitHostPort(domain); err == nil && port == "443" {
		return host
	}
	return domain
}

// trimScheme takes https:// off, and http:// where a port says that a development server is meant.
func trimScheme(text string) string {
	const secure, plain = "https://", "http://"
	switch lower := strings.ToLower(text[:min(len(text), len(secure))]); {
	case lower == secure:
		return text[len(secure):]
	case strings.HasPrefix(lower, plain) && strings.Contains(text[len(plain):], ":"):
		return text[len(plain):]
	}
	return text
}

// webDID is a DID of the did:web method: a host, with a port written %3A, and path segments.
type webDID struct {
	domain string
	path   []string // decoded
}

func parseDIDWeb(text string) (webDID, error) {
	invalid := func(reason string) (webDID, error) {
		return webDID{}, fmt.Errorf("%w: %q: %s", ErrIssuer, printable(text), reason)
	}
	segments := strings.Split(strings.TrimPrefix(text, didWeb), ":")
	host, err := url.PathUnescape(segments[0])
	if err != nil {
		return invalid("broken percent-encoding")
	}
	domain, err := ParseDomain(host)
	if err != nil {
		return invalid("want did:web:host or did:web:host%3Aport")
	}
	did := webDID{domain: trimPort(domain)}
	for _, segment := range segments[1:] {
		decoded, err := url.PathUnescape(segment)
		if err != nil || !didSegment(decoded) {
			return invalid("a path segment has characters that it must not have")
		}
		did.path = append(did.path, decoded)
	}
	return did, nil
}

// didSegment allows what stands for itself in a DID and in a path, so that no two DIDs share an address.
func didSegment(segment string) bool {
	return segment != "" && segment != "." && segment != ".." && !strings.ContainsFunc(segment, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-~", r)
	})
}

// String writes did:web:host%3Aport:segment.
func (d webDID) String() string {
	host := strings.NewReplacer(":", "%3A", "[", "%5B", "]", "%5D").Replace(d.domain)
	return didWeb + strings.Join(append([]string{host}, d.path...), ":")
}

// didOf returns the did:web of a domain.
func didOf(domain string) string { return webDID{domain: domain}.String() }

// keyDocumentURL says where a canonical issuer publishes its keys: the Connector Card of a host, or did.json (did:web
// method specification, section 2.5.2). A host with a port is a development server when plain http is allowed.
func keyDocumentURL(issuer string, allowHTTP bool) (string, error) {
	domain, path := issuer, "/.well-known/adapter-card"
	if strings.HasPrefix(issuer, didWeb) {
		did, err := parseDIDWeb(issuer)
		if err != nil {
			return "", err
		}
		domain, path = did.domain, "/.well-known/did.json"
		if len(did.path) > 0 {
			path = "/" + strings.Join(did.path, "/") + "/did.json"
		}
	}
	return (&url.URL{Scheme: schemeOf(domain, allowHTTP), Host: bracketed(domain), Path: path}).String(), nil
}

func schemeOf(domain string, allowHTTP bool) string {
	if allowHTTP && HostOf(domain) != domain {
		return "http"
	}
	return "https"
}

// bracketed writes a bare IPv6 literal as a URL wants it.
func bracketed(domain string) string {
	if ip := net.ParseIP(domain); ip != nil && ip.To4() == nil {
		return "[" + domain + "]"
	}
	return domain
}

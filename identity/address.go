// Package identity decides who a sender is and which evidence counts: agent and sender addresses, the evidence of what was verified
// about a sender, its validation against the operator's trust list, the signing of our own, and the rules of access. It
// opens no connection and keeps nothing on disk; key documents and the memory of used evidence are given to it.
package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// MaxAddressBytes bounds an address in every form.
const MaxAddressBytes = 320

const (
	maxDomainBytes = 253 // RFC 1035, section 2.3.4, without the final dot
	maxLabelBytes  = 63
)

// Address is user@domain of a person, an agent or a service. Domain is lower-case punycode and may carry a port.
type Address struct {
	Local  string
	Domain string
}

// ErrAddress is what every refused address wraps.
var ErrAddress = errors.New("invalid address")

var agentLocal = regexp.MustCompile(`^[A-Za-z0-9_-]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?$`)

// ValidAgentName reports whether name may be the local part of an agent's address: [A-Za-z0-9._-]{1,64} without a
// leading or trailing dot (message contract, section 11).
func ValidAgentName(name string) bool { return agentLocal.MatchString(name) }

// ParseAddress reads "@a@d", "a@d" and "acct:a@d". The domain is everything after the last @; it is lower-cased and
// punycoded and may carry a port. The local part is kept as written. Errors wrap ErrAddress.
func ParseAddress(text string) (Address, error) {
	if len(text) > MaxAddressBytes {
		return Address{}, fmt.Errorf("%w: over %d bytes", ErrAddress, MaxAddressBytes)
	}

	bare := strings.TrimPrefix(strings.TrimPrefix(text, "acct:"), "@")
	at := strings.LastIndexByte(bare, '@')
	if at <= 0 || !validLocal(bare[:at]) {
		return Address{}, fmt.Errorf("%w: want @user@domain, got %q", ErrAddress, text)
	}

	domain, err := ParseDomain(bare[at+1:])
	if err != nil {
		return Address{}, err
	}

	address := Address{Local: bare[:at], Domain: domain}
	if len(address.String()) > MaxAddressBytes { // punycode is longer than what it stands for
		return Address{}, fmt.Errorf("%w: over %d bytes", ErrAddress, MaxAddressBytes)
	}

	return address, nil
}

// ParseDomain lower-cases and punycodes a host name with an optional port. IP literals are kept for development
// servers; whether a single label or a literal is allowed is the caller's policy.
func ParseDomain(text string) (string, error) {
	host, port, err := cutPort(text)
	if err != nil {
		return "", fmt.Errorf("%w: %q has no valid port", ErrAddress, text)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return joinPort(ip.String(), port), nil
	}

	ascii, ok := asciiHost(strings.TrimSuffix(host, "."))
	if !ok {
		return "", fmt.Errorf("%w: %q is not a domain", ErrAddress, text)
	}
	return joinPort(ascii, port), nil
}

// cutPort takes a port off a host; an IPv6 literal is in brackets when a port follows and may stand bare otherwise.
func cutPort(text string) (host, port string, err error) {
	bracketed := strings.HasPrefix(text, "[")
	switch {
	case bracketed && strings.HasSuffix(text, "]"):
		host = text[1 : len(text)-1]
	case !bracketed && strings.Count(text, ":") != 1:
		return text, "", nil
	default:
		host, port, err = net.SplitHostPort(text)
		number, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || number == 0 {
			return "", "", ErrAddress
		}
		port = strconv.FormatUint(number, 10)
	}

	if bracketed && !strings.Contains(host, ":") {
		return "", "", ErrAddress
	}

	return host, port, nil
}

// asciiHost returns the lower-case punycode form. Plain host names, nearly all, skip the IDNA tables.
func asciiHost(host string) (string, bool) {
	if !utf8.ValidString(host) {
		return "", false
	}

	if !isASCII(host) || strings.Contains(host, "--") {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", false
		}
		host = ascii
	}

	host = strings.ToLower(host)
	return host, validHost(host)
}

// punycode are labels of a domain in their form for the DNS, in a text of any kind.
var punycode = regexp.MustCompile(`\bxn--[0-9A-Za-z-]+`)

// Spelled returns a text that has a domain, such as an address, with the domain as people write it: letters instead of punycode.
func Spelled(text string) string {
	return punycode.ReplaceAllStringFunc(text, func(label string) string {
		if letters, err := idna.Punycode.ToUnicode(label); err == nil {
			return letters
		}
		return label
	})
}

func validHost(host string) bool {
	if host == "" || len(host) > maxDomainBytes {
		return false
	}

	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > maxLabelBytes || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
				return false
			}
		}
	}

	return true
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func joinPort(host, port string) string {
	if port == "" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// validLocal refuses what would have to be quoted in one of the protocols, and everything that does not print.
func validLocal(local string) bool {
	if !utf8.ValidString(local) || strings.ContainsAny(local, "@<>\"(),:;\\[]") {
		return false
	}
	return !strings.ContainsFunc(local, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// String returns the canonical form @user@domain.
func (a Address) String() string { return "@" + a.Local + "@" + a.Domain }

// Acct returns the WebFinger form acct:user@domain (RFC 7565).
func (a Address) Acct() string { return "acct:" + a.Local + "@" + a.Domain }

// Mail returns user@host for email: the domain without a port.
func (a Address) Mail() string { return a.Local + "@" + HostOf(a.Domain) }

// CanonicalAgent returns the form under which one of our own agents is known: local parts of agents are compared
// without regard to case, those of other people are not (message contract, section 2).
func CanonicalAgent(a Address) string {
	return Address{Local: strings.ToLower(a.Local), Domain: a.Domain}.String()
}

// HostOf cuts the port and the brackets of an IPv6 literal off a domain.
func HostOf(domain string) string {
	if host, _, err := net.SplitHostPort(domain); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(domain, "["), "]")
}

// Is reports whether text is the canonical form of the address.
func (a Address) Is(text string) bool {
	local, domain := len(a.Local), len(a.Domain)
	return len(text) == local+domain+2 && text[0] == '@' && text[1:1+local] == a.Local &&
		text[1+local] == '@' && text[2+local:] == a.Domain
}

// SameAddress reports whether both texts are the same address, in whatever form each is written.
func SameAddress(a, b string) bool {
	left, errLeft := ParseAddress(a)
	right, errRight := ParseAddress(b)
	return errLeft == nil && errRight == nil && left == right
}

var errNoObject = errors.New("must be a JSON object")

// canonicalObject returns the RFC 8785 form of an object. Everything that a signature covers is read from this form:
// equal names, broken UTF-8 and lone surrogates are refused at every depth, and a number has exactly the value that
// was signed.
func canonicalObject(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, errNoObject
	}

	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, err
	}
	if canonical[0] != '{' {
		return nil, errNoObject
	}
	return canonical, nil
}

// decodeExact reads a canonical object into a struct. encoding/json folds the case of names when it fills structs, so
// a name that only folds to one of names is refused: two readers would see different documents.
func decodeExact(canonical []byte, into any, names ...string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil || members == nil {
		return errNoObject
	}

	for key := range members {
		if folds(key, names) {
			return fmt.Errorf("%q is not how the member is written", key)
		}
	}
	return json.Unmarshal(canonical, into)
}

func folds(key string, names []string) bool {
	return !slices.Contains(names, key) &&
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
}

// withoutMember takes one member out of an object within the document, or out of the document itself when object is
// empty, and returns the canonical form of what is left.
func withoutMember(canonical []byte, object, member string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return nil, err
	}
	if object == "" {
		delete(members, member)
		return encodeCanonical(members)
	}

	inner, err := withoutMember(members[object], "", member)
	if err != nil {
		return nil, err
	}

	members[object] = inner
	return encodeCanonical(members)
}

// encodeCanonical writes the RFC 8785 form of a value.
func encodeCanonical(value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(body)
}

// RegistrableDomain returns the part of a host that can be registered, by the public suffix list: all names below it
// are one owner's. A public suffix, an IP address and a name that is none are returned as they are, without a port.
func RegistrableDomain(host string) string {
	host = strings.ToLower(strings.TrimSuffix(HostOf(host), "."))
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return domain
}

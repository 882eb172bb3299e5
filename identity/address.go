// Package identity says who is who: agent and sender addresses, and the evidence that somebody verified about a
// sender. It holds shapes and pure rules; it fetches nothing and decides nothing about access by itself.
package identity

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"golang.org/x/net/idna"
)

// MaxAddressBytes bounds an address in every form.
const MaxAddressBytes = 320

// Address is user@domain of a person, an agent or a service. Domain is lower-case punycode and may carry a port.
type Address struct {
	Local  string
	Domain string
}

// ErrAddress is what every refused address wraps.
var ErrAddress = errors.New("invalid address")

var agentLocal = regexp.MustCompile(`^[A-Za-z0-9_-]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?$`)

// ValidAgentName says whether name may be the local part of an agent's address: [A-Za-z0-9._-]{1,64} without a
// leading or trailing dot (message contract, section 11).
func ValidAgentName(name string) bool { return agentLocal.MatchString(name) }

// ParseAddress reads "@a@d", "a@d" and "acct:a@d". The domain is everything after the last @; it is lower-cased and
// punycoded and may carry a port. The local part is kept as written.
func ParseAddress(text string) (Address, error) {
	if len(text) > MaxAddressBytes {
		return Address{}, fmt.Errorf("%w: over %d bytes", ErrAddress, MaxAddressBytes)
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(text, "acct:"), "@")
	at := strings.LastIndexByte(bare, '@')
	if at <= 0 || strings.ContainsAny(bare[:at], "@ \t\r\n<>\"(),:;\\[]") || !printable(bare[:at]) {
		return Address{}, fmt.Errorf("%w: want @user@domain, got %q", ErrAddress, text)
	}
	domain, err := ParseDomain(bare[at+1:])
	if err != nil {
		return Address{}, err
	}
	return Address{Local: bare[:at], Domain: domain}, nil
}

// ParseDomain lower-cases and punycodes a host name with an optional port. IP literals are kept for development
// servers; whether a single label or a literal is allowed is the caller's policy.
func ParseDomain(text string) (string, error) {
	host, port := text, ""
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	}
	host = strings.TrimSuffix(host, ".")
	if ip := net.ParseIP(host); ip != nil {
		return joinPort(host, port), nil
	}
	ascii, err := idna.Lookup.ToASCII(host)
	if err != nil || ascii == "" || len(ascii) > 253 {
		return "", fmt.Errorf("%w: %q is not a domain", ErrAddress, text)
	}
	return joinPort(strings.ToLower(ascii), port), nil
}

func joinPort(host, port string) string {
	if port == "" {
		return host
	}
	return net.JoinHostPort(host, port)
}

func printable(text string) bool {
	for _, r := range text {
		if r <= ' ' || r == 0x7f {
			return false
		}
	}
	return true
}

// String gives the canonical form @user@domain.
func (a Address) String() string { return "@" + a.Local + "@" + a.Domain }

// Acct gives the WebFinger form acct:user@domain (RFC 7565).
func (a Address) Acct() string { return "acct:" + a.Local + "@" + a.Domain }

// Mail gives user@host for email: the domain without a port.
func (a Address) Mail() string { return a.Local + "@" + HostOf(a.Domain) }

// HostOf cuts the port off a domain.
func HostOf(domain string) string {
	if host, _, err := net.SplitHostPort(domain); err == nil {
		return host
	}
	return domain
}

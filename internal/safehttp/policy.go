package safehttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"inbox/identity"
	"inbox/internal/metadata"
)

// ErrRefused is what every refusal by policy wraps: another attempt with the same address cannot succeed.
var ErrRefused = errors.New("refused by the outgoing address policy")

// Refused says which target was refused and why. errors.Is(err, ErrRefused) finds it.
type Refused struct {
	Target string // URL without user info, or address
	Reason string
}

// Error returns the target and the reason.
func (r *Refused) Error() string { return fmt.Sprintf("%s: %v: %s", r.Target, ErrRefused, r.Reason) }

// Unwrap returns ErrRefused.
func (r *Refused) Unwrap() error { return ErrRefused }

// guardian knows the special-purpose registries of IANA: loopback, private, shared, link-local (with the metadata
// services of most clouds), multicast, reserved, documentation, benchmark, and of IPv6 everything outside 2000::/3
// (unique local, v4-mapped, NAT64) plus Teredo, 6to4 and documentation inside of it.
var guardian = ssrf.New(
	ssrf.WithAnyPort(),
	// Azure's platform service has a public address that is only reachable from inside.
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
)

// CheckAddr returns why an address must not be dialled; nil when it is an ordinary public address.
func CheckAddr(address netip.Addr) error {
	if err := guardian.SafeAddr(address.WithZone("")); err != nil {
		return &Refused{Target: address.String(), Reason: "not a public address"}
	}
	return nil
}

// CheckMetadata refuses the address of a metadata service, also where an IPv6 address only carries it. It returns a *Refused.
func CheckMetadata(address netip.Addr) error {
	if metadata.At(address) {
		return &Refused{Target: address.String(), Reason: "a link-local address or a metadata service"}
	}
	return nil
}

// checkTrusted is CheckMetadata for services that the operator configured: they may be at the addresses that the operator allows.
func (o Options) checkTrusted(address netip.Addr) error {
	if slices.ContainsFunc(o.MetadataAddresses, func(allowed netip.Prefix) bool { return allowed.Addr() == metadata.Plain(address) }) {
		return nil
	}
	return CheckMetadata(address)
}

// CheckURL applies the policy that needs no network: scheme, host, port and user info. It returns a *Refused.
func (c *Client) CheckURL(u *url.URL) error {
	if reason := c.urlReason(u); reason != "" {
		return &Refused{Target: u.Redacted(), Reason: reason}
	}
	return nil
}

// lookupLimit bounds the lookup of CheckTarget.
const lookupLimit = 3 * time.Second

// CheckTarget applies the policy to an address that is requested later: CheckURL, and the addresses to which its name
// leads now. A name that cannot be looked up passes, because dialling checks again in any case. It returns a *Refused.
func (c *Client) CheckTarget(ctx context.Context, u *url.URL) error {
	if err := c.CheckURL(u); err != nil {
		return err
	}

	check := CheckAddr
	switch {
	case c.trusts(u):
		check = c.options.checkTrusted
	case c.options.AllowPrivate, c.allowed[hostPort(u)]:
		check = CheckMetadata
	}

	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	addresses, err := c.options.Resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil // dialling decides
	}

	for _, address := range addresses {
		if check(address.Unmap()) != nil {
			return &Refused{Target: u.Redacted(), Reason: "the name leads to an address that must not be called"}
		}
	}

	return nil
}

func (c *Client) urlReason(u *url.URL) string {
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return "want an https address"
	case u.Hostname() == "":
		return "no host"
	case c.trusts(u):
		return ""
	case c.refuses != nil && c.refuses(u.Host):
		return "the host is blocked by this server's operator"
	case u.User != nil:
		return "user name or password in the address"
	case c.options.AllowPrivate, c.allowed[hostPort(u)]:
		return ""
	case u.Scheme != "https":
		return "only https leaves this server"
	case u.Port() != "" && u.Port() != "443":
		return "only port 443 is allowed"
	}
	return hostReason(u.Hostname())
}

func hostReason(host string) string {
	domain, err := identity.ParseDomain(host)
	switch {
	case err != nil:
		return "host is not a domain"
	case isLiteral(domain):
		return "host is an IP address"
	case !strings.Contains(domain, "."):
		return "host is a single label"
	}
	return ""
}

// isLiteral also finds the number forms that some resolvers read as addresses (127.1, 0x7f000001): a real domain
// never ends in a label that is a number.
func isLiteral(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == "" || last[0] >= '0' && last[0] <= '9'
}

func (c *Client) trusts(u *url.URL) bool { return c.trusted[hostPort(u)] }

// hostPort returns lower-case host:port with the scheme's default port.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

package identity

import (
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// RegistrableDomain returns the part of a host that somebody registered, by the public suffix list: all names below it
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

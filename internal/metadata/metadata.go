// Package metadata knows the addresses and names at which clouds hand credentials to every caller inside.
package metadata

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// networks are those of AWS, Azure, Google, Alibaba, Oracle, Scaleway and Linode, and the link-local networks, in which most of them are.
var networks = prefixes(
	"169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32", "fd00:42::42/128", "fd00:c1::a9fe:a9fe/128", "fd00:a9fe:a9fe::1/128",
	"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
)

// names lead to these addresses inside of a cloud.
var names = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal", "metadata.tencentyun.com", "instance-data", "instance-data.ec2.internal",
}

// carriers are the networks whose addresses carry an IPv4 address in their last four bytes: IPv4-compatible, IPv4-translated (RFC 2765),
// NAT64 (RFC 6052) and local NAT64 (RFC 8215). 6to4 has it after its first two bytes.
var (
	carriers  = prefixes("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

func prefixes(list ...string) (parsed []netip.Prefix) {
	for _, text := range list {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

func within(list []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(list, func(network netip.Prefix) bool { return network.Contains(address) })
}

// Plain returns the address without zone, and the IPv4 address where an IPv6 address only carries one.
func Plain(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	wide := address.As16()
	switch {
	case address.Is6() && within(carriers, address):
		return netip.AddrFrom4([4]byte(wide[12:]))
	case address.Is6() && sixToFour.Contains(address):
		return netip.AddrFrom4([4]byte(wide[2:6]))
	}
	return address
}

// At reports whether a metadata service may be at an address.
func At(address netip.Addr) bool { return within(networks, Plain(address)) }

// NamedBy reports whether the host of a URL names a metadata service: by an address, also in the forms with fewer or other
// numbers that some resolvers read, or by a name.
func NamedBy(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(host); err == nil {
		return At(address)
	}
	if address, is := numbers(host); is {
		return At(address)
	}
	return slices.Contains(names, host)
}

// numbers reads an IPv4 address of one to four numbers, decimal, octal or hexadecimal, of which the last fills what is left (inet_aton).
func numbers(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}

	var bits uint64
	for i, part := range parts {
		width := 8
		if i == len(parts)-1 {
			width = 8 * (5 - len(parts))
		}
		number, err := strconv.ParseUint(part, 0, width)
		if err != nil {
			return netip.Addr{}, false
		}
		bits = bits<<width | number
	}
	return netip.AddrFrom4([4]byte{byte(bits >> 24), byte(bits >> 16), byte(bits >> 8), byte(bits)}), true
}

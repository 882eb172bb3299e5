// Package admission decides how much of what is scarce one stranger may hold: work in progress, and bytes in memory. It
// counts by the network that a request came from, so that what one client does is never held against another. It knows
// no protocol and stores nothing.
package admission

import "net/netip"

// Source is where a request came from: the networks that an address is in, the narrowest first. The zero value is a
// client that is not known, or the server itself.
type Source [2]netip.Prefix

// widths are the prefix lengths that are counted: what one customer has, and what a customer gets for little money.
var widths = map[bool][2]int{true: {32, 24}, false: {64, 48}} // by whether the address is IPv4

// wider is how many times more than its narrowest network a wide one may hold.
const wider = 3

// SourceOf returns the networks of an address; the zero Source for an address that is not valid.
func SourceOf(address netip.Addr) Source {
	var source Source
	address = address.Unmap().WithZone("")
	if !address.IsValid() {
		return source
	}
	for i, bits := range widths[address.Is4()] {
		source[i], _ = address.Prefix(bits) // never fails: the widths fit the family
	}
	return source
}

// Known reports whether the source names a client.
func (s Source) Known() bool { return s[0].IsValid() }

// String is the narrowest network; empty for the zero Source.
func (s Source) String() string {
	if !s.Known() {
		return ""
	}
	return s[0].String()
}

// Wide is the wider network as text; empty for the zero Source.
func (s Source) Wide() string {
	if !s.Known() {
		return ""
	}
	return s[1].String()
}

// allowance is how much the i-th network of a source may hold when the narrowest may hold base.
func allowance[N int | int64](base N, i int) N {
	if i == 0 {
		return base
	}
	return wider * base
}

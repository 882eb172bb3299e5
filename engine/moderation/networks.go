package moderation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
)

// Widths of the networks by which senders without proof are counted, the narrowest first. A host of IPv6 owns a /64, and
// who rents it gets its neighbours as easily.
var (
	widthsIPv4 = []int{32, 24}
	widthsIPv6 = []int{64, 56, 48, 32}
)

// widening is how many times more a network may do than the one inside it.
const widening = 4

// Networks names networks by a keyed hash, so that counters and messages hold no address of a person: who has the
// database and not the key could still try all addresses of IPv4 without it.
type Networks struct{ key []byte }

// NewNetworks makes Networks. The key is the same on all nodes and after every restart.
func NewNetworks(key []byte) *Networks { return &Networks{key} }

// Of returns the names of the networks of an address, the narrowest first; none for the zero Addr.
func (n *Networks) Of(address netip.Addr) []string {
	if n == nil || !address.IsValid() {
		return nil
	}

	address = address.Unmap().WithZone("")
	widths := widthsIPv4
	if address.Is6() {
		widths = widthsIPv6
	}

	names := make([]string, len(widths))
	for i, bits := range widths {
		hash := hmac.New(sha256.New, n.key)
		_, _ = hash.Write([]byte("network " + netip.PrefixFrom(address, bits).Masked().String()))
		names[i] = base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:12])
	}

	return names
}

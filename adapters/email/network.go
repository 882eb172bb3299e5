package email

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"inbox/internal/bounded"
)

// widths of the networks that are counted for one peer. A host of IPv6 owns a /64, and whoever rents more addresses gets
// neighbours: each wider network may do three times as much.
var (
	widthsIPv4 = [...]int{32, 26, 21}
	widthsIPv6 = [...]int{64, 48, 32}
)

const maxNetworks = 20_000 // counted at once

// networks are those of one peer, the narrowest first.
type networks [len(widthsIPv4)]netip.Prefix

func networksOf(address net.Addr) (found networks) {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return found
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	widths := widthsIPv4
	if ip.Is6() {
		widths = widthsIPv6
	}
	for i, bits := range widths {
		found[i], _ = ip.Prefix(bits)
	}
	return found
}

func (n networks) loopback() bool {
	return n[0].IsValid() && n[0].Addr().IsLoopback() || n[0] == loopbackIPv6
}

var loopbackIPv6 = netip.PrefixFrom(netip.IPv6Unspecified(), 64)

// allowance is the limit of the i-th width.
func allowance(limit, i int) int {
	for range i {
		limit *= 3
	}
	return limit
}

// meter counts events of networks in windows of a minute. It is bounded: when more networks come than it keeps, an
// arbitrary tenth is forgotten.
type meter struct {
	limit int // for the narrowest network in a minute
	now   func() time.Time

	mu     sync.Mutex
	counts map[netip.Prefix]minuteCount
}

type minuteCount struct {
	count int // without what was credited
	all   int
	ends  time.Time
}

// maxCredit is how many times the limit a peer may do when all that it does is credited.
const maxCredit = 10

func newMeter(limit int, now func() time.Time) *meter {
	return &meter{limit: limit, now: now, counts: map[netip.Prefix]minuteCount{}}
}

// count adds an event and says whether all networks of the peer are within their limits. What is refused counts too: a
// flood does not get through by its size.
func (m *meter) count(peer networks) bool {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	within := true
	for i, network := range peer {
		entry := m.counts[network]
		if !now.Before(entry.ends) {
			entry = minuteCount{ends: now.Add(time.Minute)}
		}
		entry.count++
		entry.all++
		if most := allowance(m.limit, i); entry.count > most || entry.all > maxCredit*most {
			within = false
		}
		if len(m.counts) >= maxNetworks {
			bounded.MakeRoom(m.counts, func(c minuteCount) bool { return !now.Before(c.ends) })
		}
		m.counts[network] = entry
	}
	return within
}

// credit takes an event back: it turned out to be one that is welcome.
func (m *meter) credit(peer networks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, network := range peer {
		if entry, known := m.counts[network]; known && entry.count > 0 {
			entry.count--
			m.counts[network] = entry
		}
	}
}

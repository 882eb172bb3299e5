package httpserver

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

var flooded = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_http_flooded_total", Help: "Requests refused because too many came from one address.",
})

// Rate is how many requests one address may make in a window.
type Rate struct {
	Requests int64
	Window   time.Duration
}

// maxFloodNetworks bounds the networks that are counted at once for one rate; beyond it the one that was quiet for longest
// is forgotten.
const maxFloodNetworks = 100_000

// Widths of the networks that are counted, the narrowest first, and how many times more each may do than the one inside
// it: a host of IPv6 owns a /64, and who rents it gets its neighbours as easily.
var (
	floodWidthsIPv4 = []int{32}
	floodWidthsIPv6 = []int{64, 56, 48, 32}
)

const floodWidening = 4

// flood answers 429 to networks that ask too often. It counts on this node alone: what it protects is this node.
type flood struct {
	next   http.Handler
	rates  []Rate
	now    func() time.Time
	mu     sync.Mutex
	tables []floodTable // one for each rate
}

// floodTable counts networks in the window of one rate.
type floodTable struct {
	counts *simplelru.LRU[netip.Prefix, *floodCount]
}

type floodCount struct {
	begun    time.Time // its window
	requests int64
}

// count adds a request of a network to the window and returns their number.
func (t *floodTable) count(network netip.Prefix, begun time.Time) int64 {
	found, known := t.counts.Get(network)
	if !known {
		found = &floodCount{begun: begun}
		t.counts.Add(network, found)
	}
	if !found.begun.Equal(begun) {
		found.begun, found.requests = begun, 0
	}

	found.requests++
	return found.requests
}

// counted returns the requests of a network in the window so far.
func (t *floodTable) counted(network netip.Prefix, begun time.Time) int64 {
	if found, known := t.counts.Peek(network); known && found.begun.Equal(begun) {
		return found.requests
	}
	return 0
}

func newFlood(next http.Handler, rates []Rate) http.Handler {
	if len(rates) == 0 {
		return next
	}
	f := &flood{next: next, rates: rates, now: time.Now}
	for range rates {
		counts, _ := simplelru.NewLRU[netip.Prefix, *floodCount](maxFloodNetworks, nil)
		f.tables = append(f.tables, floodTable{counts})
	}
	return f
}

// NewClientLimiter counts what comes from clients by something other than HTTP, under the same rates: it returns how long a client has
// to wait, zero = not at all. Clients of the operator's own networks are not counted.
func NewClientLimiter(rates []Rate, networks Networks) func(client netip.Addr) time.Duration {
	counted, limited := newFlood(nil, rates).(*flood)
	return func(client netip.Addr) time.Duration {
		if !limited || !client.IsValid() || contains(networks.Inside, client) {
			return 0
		}
		wait := counted.take(client)
		if wait > 0 {
			flooded.Inc()
		}
		return wait
	}
}

// requestQuota names the limit of requests from one address.
const requestQuota = "address"

func (f *flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if inside(r) {
		f.next.ServeHTTP(w, r)
		return
	}

	client := ClientIP(r)
	wait := f.take(client)
	limits := f.limits(client)
	if wait > 0 {
		flooded.Inc()
		WriteFault(w, &fault.Fault{Kind: fault.RateLimited, Public: "too many requests from your address", RetryAfter: wait, Quota: reached(limits)})
		return
	}

	tellLimits(w.Header(), limits)
	if recorder, is := w.(*recorder); is {
		recorder.counted = w.Header().Get(limitField)
	}

	f.next.ServeHTTP(w, r)
}

// reached is the quota of which nothing is left.
func reached(limits []serviceLimit) fault.Quota {
	var quota fault.Quota
	for _, limit := range limits {
		if limit.left <= 0 {
			quota = limit.quota
		}
	}
	return quota
}

// limits returns what an address may still ask, for each rate.
func (f *flood) limits(address netip.Addr) []serviceLimit {
	network, err := address.Prefix(widthOf(address))
	if err != nil {
		return nil
	}

	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	limits := make([]serviceLimit, len(f.rates))
	for i, rate := range f.rates {
		name := requestQuota
		if i > 0 {
			name += "-" + rate.Window.String()
		}
		begun := now.Truncate(rate.Window)
		limits[i] = serviceLimit{
			quota: fault.Quota{Name: name, Amount: rate.Requests, Window: rate.Window},
			left:  rate.Requests - f.tables[i].counted(network, begun), reset: begun.Add(rate.Window).Sub(now),
		}
	}

	return limits
}

func widthOf(address netip.Addr) int {
	if address.Is6() {
		return 64
	}
	return 32
}

// take counts a request of an address and its networks and returns how long it has to wait; zero = nothing.
func (f *flood) take(address netip.Addr) time.Duration {
	widths := floodWidthsIPv4
	if address.Is6() {
		widths = floodWidthsIPv6
	}

	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := time.Duration(0)
	for i, rate := range f.rates {
		begun, most := now.Truncate(rate.Window), rate.Requests
		for _, bits := range widths {
			network, err := address.Prefix(bits)
			if err != nil {
				return 0
			}
			if f.tables[i].count(network, begun) > most {
				wait = max(wait, begun.Add(rate.Window).Sub(now))
			}
			most *= floodWidening
		}
	}

	return wait
}

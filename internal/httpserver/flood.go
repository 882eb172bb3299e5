package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

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

// maxFloodAddresses bounds the addresses that are counted at once; beyond it the window begins anew for all.
const maxFloodAddresses = 100_000

// flood answers 429 to addresses that ask too often. It counts on this node alone: what it protects is this node.
type flood struct {
	next    http.Handler
	rates   []Rate
	now     func() time.Time
	mu      sync.Mutex
	windows []map[netip.Prefix]int64
	begun   []time.Time
}

func newFlood(next http.Handler, rates []Rate) http.Handler {
	if len(rates) == 0 {
		return next
	}
	return &flood{next: next, rates: rates, now: time.Now, windows: make([]map[netip.Prefix]int64, len(rates)), begun: make([]time.Time, len(rates))}
}

// NewPace counts what comes from addresses by something other than HTTP, under the same rates: it says how long the other
// end of a connection has to wait, zero = not at all. Private addresses are a proxy's and are not counted.
func NewPace(rates []Rate) func(remote net.Addr) time.Duration {
	counted, limited := newFlood(nil, rates).(*flood)
	return func(remote net.Addr) time.Duration {
		source := sourceOfAddress(remote)
		if !limited || !source.IsValid() {
			return 0
		}
		wait := counted.take(source.Addr())
		if wait > 0 {
			flooded.Inc()
		}
		return wait
	}
}

func (f *flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if inside(r) {
		f.next.ServeHTTP(w, r)
		return
	}
	if wait := f.take(ClientIP(r)); wait > 0 {
		flooded.Inc()
		WriteFault(w, &fault.Fault{Kind: fault.RateLimited, Public: "too many requests from your address", RetryAfter: wait})
		return
	}
	f.next.ServeHTTP(w, r)
}

// take counts a request of an address (of IPv6: of its /64) and says how long it has to wait; zero = nothing.
func (f *flood) take(address netip.Addr) time.Duration {
	bits := 32
	if address.Is6() {
		bits = 64
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return 0
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := time.Duration(0)
	for i, rate := range f.rates {
		if begin := now.Truncate(rate.Window); !begin.Equal(f.begun[i]) || len(f.windows[i]) >= maxFloodAddresses {
			f.begun[i], f.windows[i] = begin, map[netip.Prefix]int64{}
		}
		if f.windows[i][network]++; f.windows[i][network] > rate.Requests {
			wait = max(wait, f.begun[i].Add(rate.Window).Sub(now))
		}
	}
	return wait
}

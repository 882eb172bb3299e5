package httpserver

import (
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

// NewPace counts what comes from clients by something other than HTTP, under the same rates: it returns how long a client has
// to wait, zero = not at all. Clients of the operator's own networks are not counted.
func NewPace(rates []Rate, networks Networks) func(client netip.Addr) time.Duration {
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

// limits gives what an address may still ask, for each rate.
func (f *flood) limits(address netip.Addr) []serviceLimit {
	network, err := address.Prefix(widthOf(address))
	if err != nil {
		return nil
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]serviceLimit, len(f.rates))
	for i, rate := range f.rates {
		name := requestQuota
		if i > 0 {
			name += "-" + rate.Window.String()
		}
		list[i] = serviceLimit{
			quota: fault.Quota{Name: name, Amount: rate.Requests, Window: rate.Window},
			left:  rate.Requests - f.windows[i][network], reset: f.begun[i].Add(rate.Window).Sub(now),
		}
	}
	return list
}

func widthOf(address netip.Addr) int {
	if address.Is6() {
		return 64
	}
	return 32
}

// take counts a request of an address (of IPv6: of its /64) and says how long it has to wait; zero = nothing.
func (f *flood) take(address netip.Addr) time.Duration {
	network, err := address.Prefix(widthOf(address))
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

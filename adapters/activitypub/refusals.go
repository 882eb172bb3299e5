package activitypub

import (
	"net/http"
	"time"

	"inbox/internal/fault"
)

// Requests that were refused are counted by the network address that they came from, and an address with too many of
// them is put off: guessing, forging and flooding cost the sender more than us. Accepted requests cost nothing here; how
// much a proven sender may ask is the pipeline's matter.

const refusalPeriod = 5 * time.Minute

// putOff refuses a request from an address whose requests were refused too often.
func (a *Adapter) putOff(r *http.Request) error {
	key, counts := a.clientOf(r)
	if !counts {
		return nil
	}
	if wait := a.refusals.exceeded(key, a.now()); wait > 0 {
		return &fault.Fault{Kind: fault.RateLimited, Public: "too many refused requests from your address", RetryAfter: wait}
	}
	return nil
}

func (a *Adapter) countRefusal(r *http.Request, err error) {
	switch fault.Of(err).Kind {
	case fault.Malformed, fault.Unauthenticated, fault.Forbidden, fault.TooLarge, fault.Unsupported:
		if key, counts := a.clientOf(r); counts {
			a.refusals.take(key, a.now())
		}
	}
}

// clientOf gives the network that a request came from: one IPv4 address, or the /64 that one IPv6 customer has. Loopback
// and private addresses are nobody's: they are a proxy that does not tell for whom it asks.
func (a *Adapter) clientOf(r *http.Request) (key string, counts bool) {
	if a.options.MaxRefusals < 0 {
		return "", false
	}
	address := a.options.ClientAddress(r)
	if !address.IsValid() || address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast() {
		return "", false
	}
	if address.Is4() {
		return address.String(), true
	}
	network, err := address.Prefix(64)
	return network.String(), err == nil
}

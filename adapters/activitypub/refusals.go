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
func (v *verifier) putOff(r *http.Request) error {
	key, counts := v.clientOf(r)
	if !counts {
		return nil
	}
	if wait := v.refusals.exceeded(key, v.now()); wait > 0 {
		return &fault.Fault{Kind: fault.RateLimited, Public: "too many refused requests from your address", RetryAfter: wait}
	}
	return nil
}

func (v *verifier) countRefusal(r *http.Request, err error) {
	switch fault.Of(err).Kind {
	case fault.Malformed, fault.Unauthenticated, fault.Forbidden, fault.TooLarge, fault.Unsupported:
		if key, counts := v.clientOf(r); counts {
			v.refusals.take(key, v.now())
		}
	}
}

// clientOf gives the network that a request came from: one IPv4 address, or the /64 that one IPv6 customer has. Loopback
// and private addresses are nobody's: they are a proxy that does not tell for whom it asks.
func (v *verifier) clientOf(r *http.Request) (key string, counts bool) {
	if v.options.MaxRefusals < 0 {
		return "", false
	}
	address := v.options.ClientAddress(r)
	if !address.IsValid() || address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast() {
		return "", false
	}
	if address.Is4() {
		return address.String(), true
	}
	network, err := address.Prefix(64)
	return network.String(), err == nil
}

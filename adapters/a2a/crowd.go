package a2a

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/webtoken"
)

var crowded = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_a2a_crowded_total", Help: "Requests refused because too many of the same caller were under way.",
})

const defaultCallerConcurrency = 2000

// crowd counts the requests of each caller that are under way on this node: streams and blocking sends stay for long, and
// each holds a connection and its buffers.
type crowd struct {
	most int
	mu   sync.Mutex
	open map[string]int
}

func newCrowd(most int) *crowd { return &crowd{most: most, open: map[string]int{}} }

// enter takes a place, which leave gives back; nil = there is none.
func (c *crowd) enter(name string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name] >= c.most {
		crowded.Inc()
		return nil
	}
	c.open[name]++
	return func() { c.leave(name) }
}

func (c *crowd) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name]--; c.open[name] == 0 {
		delete(c.open, name)
	}
}

// crowdOf is who counts as one: all agents of a peer's server together, because it makes as many of them as it likes.
func crowdOf(principal string, claims webtoken.Claims) string {
	if claims.Peer == (identity.Address{}) {
		return principal
	}
	return "peer\n" + claims.Peer.Domain
}

// admitted takes a place among the requests of the caller.
func (a *Adapter) admitted(c *call) *problem {
	if c.leave = a.crowd.enter(c.caller.crowd); c.leave != nil {
		return nil
	}
	return problemOf(&fault.Fault{
		Kind: fault.RateLimited, Public: "too many of your requests are under way at the same time", RetryAfter: time.Second,
	})
}

// left returns the place of a call.
func (c *call) left() {
	if c.leave != nil {
		c.leave()
	}
}

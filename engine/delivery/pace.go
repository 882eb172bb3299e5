package delivery

import (
	"sync"
	"time"
)

// paces space the attempts to one key: so many in a second, and as many at once when it was quiet before.
type paces struct {
	mu   sync.Mutex
	next map[string]time.Time // when the allowance of the key is whole again
}

func newPaces() *paces { return &paces{next: map[string]time.Time{}} }

// take reserves an attempt and says how long to wait for it. A wait of more than patience reserves nothing.
func (p *paces) take(key string, perSecond float64, atOnce int, now time.Time, patience time.Duration) (wait time.Duration, ok bool) {
	if perSecond <= 0 {
		return 0, true
	}
	step := time.Duration(float64(time.Second) / perSecond)
	burst := max(time.Second-step, 0)
	if atOnce > 0 {
		burst = step * time.Duration(atOnce-1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) >= maxKeys {
		p.forgetIdle(now)
	}
	whole := p.next[key]
	if whole.Before(now) {
		whole = now
	}
	if wait = whole.Sub(now) - burst; wait > patience {
		return wait, false
	}
	p.next[key] = whole.Add(step)
	return max(wait, 0), true
}

func (p *paces) forgetIdle(now time.Time) {
	for key, whole := range p.next {
		if whole.Before(now) {
			delete(p.next, key)
		}
	}
	if len(p.next) >= maxKeys {
		clear(p.next)
	}
}

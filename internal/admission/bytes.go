package admission

import (
	"net/netip"
	"sync"
)

// Bytes bounds what callers have in memory at one time. One client network may hold an eighth of it and its /24 or /48
// three eighths, so that one stranger cannot use it up; callers without proof leave a quarter to those who proved who they
// are. It is safe for concurrent use.
type Bytes struct {
	limit, share int64

	mu   sync.Mutex
	used int64
	from map[netip.Prefix]int64
}

// NewBytes makes a budget of limit bytes. A network's share is never less than largest, so that one message of that size
// can arrive.
func NewBytes(limit, largest int64) *Bytes {
	return &Bytes{limit: limit, share: max(limit/8, largest), from: map[netip.Prefix]int64{}}
}

// Limit is the size of the budget.
func (b *Bytes) Limit() int64 { return b.limit }

// Used is how much of it is taken.
func (b *Bytes) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Take takes n bytes or reports false, and then nothing was taken. The zero Source has no share of its own and is bound by
// the whole. The share of a proven caller's network is four times as large.
func (b *Bytes) Take(source Source, proven bool, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit, share := b.limit-b.limit/4, b.share
	if proven {
		limit, share = b.limit, 4*b.share
	}
	if b.used+n > limit {
		return false
	}
	if !source.Known() {
		b.used += n
		return true
	}

	for i, network := range source {
		if b.from[network]+n > allowance(share, i) {
			return false
		}
	}

	b.used += n
	for _, network := range source {
		b.from[network] += n
	}

	return true
}

// Give returns n bytes that Take took for the same source.
func (b *Bytes) Give(source Source, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n

	if !source.Known() {
		return
	}

	for _, network := range source {
		if b.from[network] -= n; b.from[network] <= 0 {
			delete(b.from, network)
		}
	}
}

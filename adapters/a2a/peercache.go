package a2a

import (
	"sync"
	"time"
)

const maxPeers = 1024 // cards kept

// peerCache remembers cards for a few minutes.
type peerCache struct {
	mu    sync.Mutex
	found map[string]peer
}

func newPeerCache() *peerCache { return &peerCache{found: map[string]peer{}} }

func (p *peerCache) get(address string) (peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.found[address]
	return found, ok && time.Now().Before(found.expires)
}

func (p *peerCache) put(address string, found peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.found) >= maxPeers {
		clear(p.found)
	}
	p.found[address] = found
}

func (p *peerCache) drop(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.found, address)
}

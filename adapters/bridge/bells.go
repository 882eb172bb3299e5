package bridge

import "sync"

// bells wake who waits on this node for the queue of a client. A bell may ring for nothing and may be missed: who waits
// also looks by itself from time to time.
type bells struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by client
}

// listen returns a channel that gets a value when the client's queue changes; leave ends it.
func (b *bells) listen(client string) (ringing <-chan struct{}, leave func()) {
	bell := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string]map[chan struct{}]bool{}
	}
	if b.waiting[client] == nil {
		b.waiting[client] = map[chan struct{}]bool{}
	}
	b.waiting[client][bell] = true
	return bell, func() { b.leave(client, bell) }
}

func (b *bells) leave(client string, bell chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting[client], bell)
	if len(b.waiting[client]) == 0 {
		delete(b.waiting, client)
	}
}

// Wake tells that the queue of a client changed, on this node or another; an empty id stands for any client.
func (a *Adapter) Wake(client string) {
	b := &a.bells
	b.mu.Lock()
	defer b.mu.Unlock()
	for waiting, ringing := range b.waiting {
		if client != "" && client != waiting {
			continue
		}
		for bell := range ringing {
			select {
			case bell <- struct{}{}:
			default: // it is awake already
			}
		}
	}
}

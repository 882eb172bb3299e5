package pull

import "sync"

// bells wake who waits on this node. A bell may ring for nothing and may be missed: who waits also looks by itself from
// time to time.
type bells struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{} // by topic, oldest first
}

func offersTopic(agent string) string { return "offers " + agent }
func endsTopic(agent string) string   { return "ends " + agent }
func runTopic(run string) string      { return "run " + run }

// listen returns a channel that gets a value when the topic rings; leave ends it.
func (b *bells) listen(topic string) (ringing <-chan struct{}, leave func()) {
	bell := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string][]chan struct{}{}
	}
	b.waiting[topic] = append(b.waiting[topic], bell)
	return bell, func() { b.leave(topic, bell) }
}

func (b *bells) leave(topic string, bell chan struct{}) {
	b.mu.Lock()
	left := b.waiting[topic][:0:0]
	for _, other := range b.waiting[topic] {
		if other != bell {
			left = append(left, other)
		}
	}
	b.waiting[topic] = left
	if len(left) == 0 {
		delete(b.waiting, topic)
	}
	b.mu.Unlock()
	select {
	case <-bell: // it was meant for somebody who waits
		b.ring(topic, 1)
	default:
	}
}

// ring wakes as many as given, those who have waited longest first.
func (b *bells) ring(topic string, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bell := range b.waiting[topic] {
		if count == 0 {
			return
		}
		select {
		case bell <- struct{}{}:
			count--
		default: // it is awake already
		}
	}
}

// ringAll wakes everybody.
func (b *bells) ringAll(topic string) { b.ring(topic, -1) }

package safehttp

import (
	"context"
	"fmt"
	"sync"
)

// slots bounds the requests under way, in all and to one host. A host has an entry only while somebody uses it.
type slots struct {
	all     chan struct{}
	perHost int

	mutex sync.Mutex
	hosts map[string]*host
}

type host struct {
	slots chan struct{}
	users int // waiting or under way
}

func newSlots(all, perHost int) *slots {
	return &slots{all: make(chan struct{}, all), perHost: perHost, hosts: map[string]*host{}}
}

// enter waits for a slot of the host, then for one of all, so that a crowd before one slow host leaves the rest free.
func (s *slots) enter(ctx context.Context, name string) (release func(), err error) {
	h := s.join(name)
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		s.leave(name, h)
		return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-h.slots
		s.leave(name, h)
		return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return func() {
		<-s.all
		<-h.slots
		s.leave(name, h)
	}, nil
}

func (s *slots) join(name string) *host {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	h := s.hosts[name]
	if h == nil {
		h = &host{slots: make(chan struct{}, s.perHost)}
		s.hosts[name] = h
	}
	h.users++
	return h
}

func (s *slots) leave(name string, h *host) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if h.users--; h.users == 0 {
		delete(s.hosts, name)
	}
}

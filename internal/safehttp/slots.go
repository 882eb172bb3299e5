package safehttp

import (
	"context"
	"fmt"

	"inbox/internal/semaphore"
)

// slots bounds the requests under way, in all and to one host.
type slots struct {
	all     chan struct{}
	hosts   semaphore.Keyed
	perHost int
}

func newSlots(all, perHost int) *slots {
	return &slots{all: make(chan struct{}, all), perHost: perHost}
}

// enter waits for a slot of the host, then for one of all, so that many requests to one slow host leave the rest free.
func (s *slots) enter(ctx context.Context, host string) (release func(), err error) {
	leave, err := s.hosts.Acquire(ctx, host, s.perHost)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", host, err)
	}

	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%s: %w", host, context.Cause(ctx))
	}

	return func() {
		<-s.all
		leave()
	}, nil
}

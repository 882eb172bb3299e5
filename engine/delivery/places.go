package delivery

import (
	"context"
	"sync"
	"time"
)

// placeTime is how long an attempt keeps its place: whoever waits for a slow peer costs no processor, so the place goes
// to the next, and peers that are dead or slow delay nobody else.
const placeTime = time.Second

// places bound the attempts that work at once on this node. A nil places bounds nothing.
type places chan struct{}

// take waits for a place. The returned function gives it back; that happens by itself after placeTime.
func (p places) take(ctx context.Context) (leave func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	release := func() { once.Do(func() { <-p }) }
	timer := time.AfterFunc(placeTime, release)
	return func() { timer.Stop(); release() }, nil
}

package queue

import (
	"context"
	"time"
)

// Depth is how many jobs of a kind wait for a worker.
type Depth struct {
	Ready  int
	Oldest time.Duration // since when the oldest of them could run
}

// Counter is what a store may do besides: it counts the jobs that could run now. A queue over a store without it has no such metrics.
type Counter interface {
	// Ready counts the jobs of a kind that wait for a worker, no more than most of them.
	Ready(ctx context.Context, kind string, most int) (Depth, error)
}

// How often waiting jobs are counted, and how many of a kind at most: what is over that costs nothing.
const (
	countEvery   = 15 * time.Second
	countTimeout = 5 * time.Second
	countMost    = 100_000
)

// count publishes how many jobs wait, until ctx ends.
func (q *Queue) count(ctx context.Context) {
	counter, able := q.store.(Counter)
	if !able {
		return
	}

	ticker := time.NewTicker(countEvery)
	defer ticker.Stop()
	defer jobsReady.Leave(q)
	defer oldestReady.Leave(q)
	for {
		for kind := range q.workers {
			q.countKind(ctx, counter, kind)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// countKind keeps the last figures when the store does not answer: readiness tells of that.
func (q *Queue) countKind(ctx context.Context, counter Counter, kind string) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	depth, err := counter.Ready(ctx, kind, countMost)
	if err != nil {
		return
	}
	jobsReady.Set(q, float64(depth.Ready), kind)
	oldestReady.Set(q, max(depth.Oldest, 0).Seconds(), kind)
}

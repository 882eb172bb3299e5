package store

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// checkpointer moves pages from SQLite's write-ahead log into the database beside the writer. Left to itself the
// writer does so in one of its commits, and every caller waits for tens of milliseconds.
//
// The log begins anew only when nothing in it is left to move, which never happens while the writer goes on: the log
// grows up to the writer's own limit, and each commit pays for a file that grows. So when little is left the writer
// itself moves the rest between two commits.
type checkpointer struct {
	beside func(context.Context) error // moves what it can, on a connection of its own
	finish func(context.Context) error // moves the rest between two of the writer's transactions
	logger logger
	writes atomic.Int64
	due    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	// checkpointWrites is the number of transactions after which a checkpoint is due at once. More of them move fewer pages
	// in all, fewer make each sync short: with 1000 the slowest hundredth of 10 KiB mails waited a quarter longer.
	checkpointWrites = 400
	checkpointEvery  = time.Second
	// fewWrites is the number of transactions whose pages the writer moves in a few milliseconds.
	fewWrites = 64
	// maxPasses bounds how often the rest is moved beside the writer until it is that little.
	maxPasses = 4
)

// PASSIVE waits for nobody. What it leaves, the next one or the writer's own limit takes.
const checkpoint = "PRAGMA wal_checkpoint(PASSIVE)"

func startCheckpointer(pool *sql.DB, w *writer, log logger) *checkpointer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &checkpointer{
		beside: func(ctx context.Context) error {
			_, err := pool.ExecContext(ctx, checkpoint)
			return err
		},
		finish: func(ctx context.Context) error {
			return w.between(ctx, func(s *writerSession) error { return s.execute(checkpoint) })
		},
		logger: log, due: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go c.loop(ctx)
	return c
}

// wrote counts transactions that were committed.
func (c *checkpointer) wrote(transactions int) {
	if c.writes.Add(int64(transactions)) < checkpointWrites {
		return
	}
	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *checkpointer) loop(ctx context.Context) {
	defer close(c.done)
	ticker := time.NewTicker(checkpointEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.due:
		case <-ticker.C:
		}
		if c.writes.Swap(0) == 0 {
			continue
		}
		if err := c.empty(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("checkpoint of the write-ahead log", "error", err)
		}
	}
}

// empty moves what the log holds. Each pass takes less time than the one before, and less is written meanwhile.
func (c *checkpointer) empty(ctx context.Context) error {
	for range maxPasses {
		if err := c.beside(ctx); err != nil {
			return err
		}
		switch meanwhile := c.writes.Swap(0); {
		case meanwhile == 0:
			return nil
		case meanwhile <= fewWrites:
			return c.finish(ctx)
		}
	}
	return nil
}

func (c *checkpointer) stop() {
	c.cancel()
	<-c.done
}

package store

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// checkpointer moves pages from SQLite's write-ahead log into the database beside the writer. Left to itself the
// writer does so in one of its commits, and every caller waits for tens of milliseconds.
type checkpointer struct {
	pool   *sql.DB
	logger logger
	writes atomic.Int64
	due    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	// checkpointWrites is the number of transactions after which a checkpoint is due at once.
	checkpointWrites = 1000
	checkpointEvery  = time.Second
)

func startCheckpointer(pool *sql.DB, log logger) *checkpointer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &checkpointer{pool: pool, logger: log, due: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
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
		// PASSIVE waits for nobody. What it leaves, the next one or the writer's own limit takes.
		if _, err := c.pool.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil && ctx.Err() == nil {
			c.logger.Warn("checkpoint of the write-ahead log", "error", err)
		}
	}
}

func (c *checkpointer) stop() {
	c.cancel()
	<-c.done
}

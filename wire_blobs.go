package inbox

import (
	"context"
	"time"
)

// Files of erased messages go at the latest so long after they were last put.
const (
	blobIdle  = time.Hour
	blobSweep = 10 * time.Minute
)

// Files to which nothing refers, because their message was refused or a process died, go after a day. That is longer than
// anything takes from putting a file to committing what refers to it; the longest are runs of agents.
const (
	orphanIdle  = 24 * time.Hour
	orphanSweep = 6 * time.Hour
)

// The document that says when orphans were swept. Who writes it sweeps, whichever node that is; it ends when the next sweep
// is due.
const (
	sweptNamespace = "blobs"
	sweptKey       = "orphans swept"
)

// sweepBlobs deletes the files of erased messages and those to which nothing refers, now and then until ctx ends.
func (s *Server) sweepBlobs(ctx context.Context) error {
	ticker := time.NewTicker(blobSweep)
	defer ticker.Stop()
	for {
		deleted, err := s.store.SweepBlobs(ctx, s.blobs, blobIdle)
		s.logSweep(ctx, "erased messages", deleted, err)
		deleted, err = s.sweepOrphans(ctx, orphanIdle)
		s.logSweep(ctx, "what nothing refers to", deleted, err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Server) logSweep(ctx context.Context, of string, deleted int, err error) {
	if err != nil && ctx.Err() == nil {
		s.logger.WarnContext(ctx, "files are deleted later", "of", of, "error", err)
	}
	if deleted > 0 {
		s.logger.InfoContext(ctx, "files were deleted", "of", of, "files", deleted)
	}
}

// sweepOrphans sweeps when that is due and no other node does.
func (s *Server) sweepOrphans(ctx context.Context, idle time.Duration) (deleted int, err error) {
	now := time.Now()
	_, mine, err := s.store.State().PutIfAbsent(ctx, sweptNamespace, sweptKey, []byte(now.UTC().Format(time.RFC3339)), now.Add(orphanSweep))
	if err != nil || !mine {
		return 0, err
	}
	deleted, err = s.store.SweepOrphans(ctx, s.blobs, idle)
	if err != nil { // it is due again
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.store.State().Delete(again, sweptNamespace, sweptKey)
	}
	return deleted, err
}

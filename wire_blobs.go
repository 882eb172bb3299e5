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

// sweepBlobs deletes the files of erased messages, now and then until ctx ends.
func (s *Server) sweepBlobs(ctx context.Context) error {
	ticker := time.NewTicker(blobSweep)
	defer ticker.Stop()
	for {
		deleted, err := s.store.SweepBlobs(ctx, s.blobs, blobIdle)
		switch {
		case err != nil && ctx.Err() == nil:
			s.logger.WarnContext(ctx, "files of erased messages are deleted later", "error", err)
		case deleted > 0:
			s.logger.InfoContext(ctx, "files of erased messages are deleted", "files", deleted)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

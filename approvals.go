package inbox

import (
	"time"

	"inbox/internal/queue"
)

// approvalConcurrency is how many approvers are looked up at once.
const approvalConcurrency = 4

// handleApprovals lets the queue tell approvers and askers. How often is tried is the pipeline's to say.
func (s *Server) handleApprovals(kind string, handler queue.Handler) {
	s.queue.Handle(kind, queue.KindOptions{Concurrency: approvalConcurrency, Timeout: time.Minute}, handler)
}

package inbox

import (
	"inbox/engine/delivery"
	"inbox/internal/queue"
)

// handleDeliveries gives the deliveries their workers. Many of them wait for slow peers, which costs nothing but a
// connection, so there are more workers than attempts that may work at once.
func (s *Server) handleDeliveries() {
	workers := waitingWorkers * s.config.Queue.DeliveryConcurrency
	s.queue.Handle(delivery.JobKind, queue.KindOptions{Concurrency: workers}, s.delivery.Run)
	s.queue.Handle(delivery.BulkKind, queue.KindOptions{Concurrency: workers}, s.delivery.Run)
	s.queue.Handle(delivery.SpreadKind, queue.KindOptions{Concurrency: 2}, s.delivery.Spread)
}

// waitingWorkers is how many deliveries may wait for peers for each one that works.
const waitingWorkers = 4

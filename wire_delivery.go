package inbox

import (
	"context"

	"inbox/adapters/activitypub"
	"inbox/engine/delivery"
	"inbox/internal/queue"
)

// waitingWorkers is how many deliveries may wait for peers for each one that works.
const waitingWorkers = 4

// handleDeliveries returns the deliveries their workers. Many of them wait for slow peers, which costs nothing but a
// connection, so there are more workers than attempts that may work at once.
func (s *Server) handleDeliveries() {
	options := queue.KindOptions{
		Concurrency: waitingWorkers * s.config.Queue.DeliveryConcurrency, PerMember: s.delivery.MostPerKey(),
	}
	s.queue.Handle(delivery.JobKind, options, s.delivery.Run)
	s.queue.Handle(delivery.BulkKind, options, s.delivery.Run)
	s.queue.Handle(delivery.SpreadKind, queue.KindOptions{Concurrency: 2}, s.delivery.Spread)
}

// hostAlive is told of servers that sent something with a good signature.
func (s *Server) hostAlive(ctx context.Context, host string) {
	s.delivery.Alive(ctx, activitypub.ChannelName, host)
}

// fediverseProfile is what the configuration says about an agent's account.
func (s *Server) fediverseProfile(name string) activitypub.Profile {
	for _, agent := range s.config.Agents {
		if agent.Name == name {
			f := agent.Fediverse
			return activitypub.Profile{
				Icon: f.Icon, Image: f.Image, Hidden: !f.Discoverable, Indexable: f.Indexable, AlsoKnownAs: f.AlsoKnownAs,
				QuotesByFans: f.Quotes == "followers",
			}
		}
	}
	return activitypub.Profile{}
}

package pipeline

import (
	"context"
	"sync"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// ackSettle is how long a run takes at least before its asker is told. A turn that was taken up late (after a restart,
// behind others of its thread, released by the operator) is often answered in a moment.
const ackSettle = 2 * time.Second

// AckTx is what a transaction does about acknowledgements.
type AckTx interface {
	// InsertAck stores an acknowledgement of a turn that is accepted, running or waits for a tool, has sent nothing yet and has no
	// acknowledgement, and reports whether it did. Neither the turn's reply nor its history changes.
	InsertAck(ctx context.Context, reply exchange.Reply, nativeID string) (bool, error)
	// CancelAck cancels what of the turn's acknowledgement is not delivered, and removes the jobs that wait to do it. It
	// comes before the turn's row is taken.
	CancelAck(ctx context.Context, turnID string, at time.Time) error
}

// ackAfter returns how long after its acceptance a turn is acknowledged; 0 = not at all. Agents are told nothing: they
// would take it for the answer. An asker who got a demand heard of us already.
func (s *Service) ackAfter(agent agents.Entry, turn exchange.TurnRecord) time.Duration {
	channel, able := s.options.Channels.Channel(turn.Channel).(exchange.Acknowledger)
	switch {
	case agent.Settings.AckAfter <= 0, !able, turn.ReplyID != "", turn.Message.RecipientCapabilities.AgentChain != nil:
		return 0
	}
	return max(0, channel.AckAfter(agent.Settings.AckAfter))
}

// mayBeAcknowledged reports whether the end of the turn has to look for an acknowledgement under way.
func (s *Service) mayBeAcknowledged(turn exchange.TurnRecord) bool {
	agent, known := s.options.Agents.Lookup(turn.Agent)
	return known && s.ackAfter(agent, turn) > 0
}

// signOfLife tells the asker once that the turn is being worked on, when the run lasts until the turn is old enough.
// The returned function ends that: afterwards nothing is said any more.
func (s *Service) signOfLife(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (quiet func()) {
	after := s.ackAfter(agent, turn)
	if after == 0 {
		return func() {}
	}
	var once sync.Once
	timer := time.AfterFunc(max(time.Until(turn.AcceptedAt.Add(after)), min(after, ackSettle)), func() {
		once.Do(func() { s.acknowledge(ctx, agent, turn) })
	})
	return func() {
		timer.Stop()
		once.Do(func() {}) // waits for one under way, or forbids a later one
	}
}

// acknowledge stores the acknowledgement with its deliveries. When that fails the asker waits without: the answer is
// what counts.
func (s *Service) acknowledge(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Logger.ErrorContext(ctx, "acknowledgement failed", "error", panicError(p))
		}
	}()
	var response normalized.Response
	response.Parts = []normalized.Part{normalized.Text(agent.Settings.AckText)}
	reply := s.newReply(turn, response.Answering(turn.Message))
	reply.Notice = exchange.NoticeAck
	plan, err := s.plan(ctx, reply)
	if err == nil && len(plan.Destinations) > 0 {
		err = s.storeAck(ctx, reply, plan)
	}
	if err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "the asker was not told that the message takes long", "error", err)
	}
}

func (s *Service) storeAck(ctx context.Context, reply exchange.Reply, plan exchange.Plan) error {
	reply = planned(reply, plan)
	deliveries := deliveriesOf(reply, plan)
	s.options.Deliveries.Expect(deliveries, reply)
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		inserted, err := tx.InsertAck(ctx, reply, plan.NativeID)
		if err != nil || !inserted {
			return err
		}
		return insertDeliveries(ctx, tx, reply, deliveries)
	})
}

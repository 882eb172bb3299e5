package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

// storeTries and storeWait bound how long a finished answer waits for a database that is down before the run is
// given back: running the agent again costs its author money.
const (
	storeTries = 5
	storeWait  = 500 * time.Millisecond
)

// ending is how a run ends: with a reply, in a state, and with what else belongs to the transaction.
type ending struct {
	turn          exchange.TurnRecord
	reply         exchange.Reply
	state, reason string
	more          func(ctx context.Context, tx Tx) error // nil = nothing else
	unsent        bool                                   // the reply is kept for those who ask, and goes nowhere
}

// replier stores answers with their deliveries, and what is said before and beside them: acknowledgements and notices.
type replier struct{ *core }

// newReply makes the reply of a response, with its id and time: they are final before the first attempt. The id follows from the turn
// and the reply that it had before, so that a turn that runs once more, after a crash or from a backup, answers with the same
// id (decision 0106).
func (s *replier) newReply(turn exchange.TurnRecord, response normalized.Response) exchange.Reply {
	return exchange.Reply{
		ID: exchange.DerivedID(turn.ID, "reply", cmp.Or(turn.ReplyID, turn.Retried)), TurnID: turn.ID, Agent: turn.Agent,
		Message: turn.Message, Channel: turn.Channel, Route: turn.Route,
		Response: narrowed(turn, response), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// reply ends a run with the answer.
func (s *replier) reply(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, response normalized.Response, reason string) error {
	return s.conclude(ctx, job, record, ending{turn: turn, reply: s.newReply(turn, response), state: stateOf(response), reason: reason})
}

// conclude stores the reply and one delivery per destination in one transaction that also ends the job, so that a
// crash at any point leaves either everything or a turn that runs again.
func (s *replier) conclude(ctx context.Context, job queue.Job, record *runRecord, end ending) error {
	turn, reply := end.turn, end.reply
	plan, err := s.planOf(ctx, end)
	if err != nil { // nothing can be sent: the turn ends as a row that the operator finds
		end.state, end.reason, end.more = exchange.StateFailed, notPlanned+err.Error(), nil
	}

	reply = planned(reply, plan)
	end.reply = reply
	deliveries := deliveriesOf(ctx, reply, plan)
	s.options.Deliveries.Expect(deliveries, reply)
	moved, unknown := false, false
	for try := 1; ; try++ {
		moved, err = s.storeReply(ctx, job, record, end, deliveries, plan)
		if unknown && errors.Is(err, queue.ErrLeaseLost) {
			moved, err = s.isStored(ctx, reply)
		}
		unknown = unknown || fault.OutcomeOf(err) == fault.Unknown
		if err == nil || try == storeTries || !fault.Is(err, fault.Unavailable) || clock.Sleep(ctx, storeWait) != nil {
			break
		}
	}

	if err != nil && !errors.Is(err, errEdited) {
		return s.unstorable(ctx, job, turn, record, end.reason, err)
	}
	if errors.Is(err, errEdited) {
		return queue.RetryAfter(time.Millisecond, errEdited)
	}
	if !moved { // cancelled while the agent ran: the job ended, nothing is sent
		return queue.ErrSettled
	}

	finished.WithLabelValues(turn.Agent, end.state).Inc()
	s.logState(ctx, turn, end.state, end.reason)
	s.spend(ctx, turn, reply.Response)
	turn.State, turn.Reason, turn.ReplyID, turn.Response, turn.UpdatedAt = end.state, end.reason, reply.ID, &reply.Response, reply.CreatedAt
	s.broker.finished(turn)
	return queue.ErrSettled
}

// isStored finds a reply whose commit had no answer and whose job is gone. The lease is lost when another worker has the job.
func (s *replier) isStored(ctx context.Context, reply exchange.Reply) (bool, error) {
	turn, err := s.options.Store.Turn(ctx, reply.TurnID)
	if err == nil && turn.ReplyID != reply.ID {
		err = queue.ErrLeaseLost
	}
	return err == nil, err
}

// unstorable ends a turn whose answer the database refuses for good: a visible failure instead of running the agent
// again and again. An answer that met a database that is down is given back to the queue.
func (s *replier) unstorable(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, reason string, cause error) error {
	const prefix = "store reply: "
	if errors.Is(cause, errOvertaken) || errors.Is(cause, queue.ErrLeaseLost) || ctx.Err() != nil || fault.Is(cause, fault.Unavailable) || strings.HasPrefix(reason, prefix) {
		return cause
	}
	return s.reply(ctx, job, turn, record, failure(turn, fault.Of(cause)), prefix+cause.Error())
}

func (s *replier) planOf(ctx context.Context, end ending) (exchange.Plan, error) {
	if end.unsent {
		return exchange.Plan{}, nil
	}
	return s.plan(ctx, end.reply)
}

func (s *replier) plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	if reply.Response.Silent || reply.Channel == exchange.ChannelLocal {
		return exchange.Plan{}, nil
	}
	channel := s.options.Channels.Channel(reply.Channel)
	if channel == nil {
		return exchange.Plan{}, fmt.Errorf("no adapter for %s is configured", reply.Channel)
	}
	return channel.Plan(ctx, reply)
}

func (e ending) also(ctx context.Context, tx Tx) error {
	if e.more == nil {
		return nil
	}
	return e.more(ctx, tx)
}

// notPlanned begins the reason of a turn whose answer had no way to its sender.
const notPlanned = "plan reply: "

// errNotRunning rolls the transaction of a reply back: the turn was cancelled meanwhile.
var errNotRunning = errors.New("the turn is not running any more")

// storeReply does the one transaction. When the turn is not running any more only the job ends.
func (s *replier) storeReply(
	ctx context.Context, job queue.Job, record *runRecord, end ending, deliveries []delivery.Record, plan exchange.Plan,
) (moved bool, err error) {
	late, missing := record.late()
	result, _ := record.result.ready(ctx, record.blobs)
	reply, acknowledged := end.reply, s.mayBeAcknowledged(end.turn)
	transition := endRun
	if end.state == exchange.StateWaiting {
		transition = parkTurn
	}

	move := transition.Move(end.turn.ID, end.state, end.reason, reply.CreatedAt)
	move.Attempt, move.Unchanged = end.turn.Attempt, end.turn.UpdatedAt

	if !missing {
		move.Unchanged = record.move.At
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}

		if acknowledged {
			if err := tx.CancelAck(ctx, reply.TurnID, reply.CreatedAt); err != nil {
				return err
			}
		}

		if err := appendLate(ctx, tx, reply.TurnID, late); err != nil {
			return err
		}
		if err := putResult(ctx, tx, result); err != nil {
			return err
		}

		moved, err := tx.AnswerTurn(ctx, move, reply, plan.NativeID)
		if err != nil {
			return err
		}
		if !moved {
			return errNotRunning
		}
		if err := end.also(ctx, tx); err != nil {
			return err
		}
		if err := insertDeliveries(ctx, tx, reply, deliveries); err != nil || !plan.Spread {
			return err
		}

		rest, err := delivery.SpreadJob(reply.ID)
		if err != nil {
			return err
		}

		return tx.Enqueue(ctx, rest)
	})
	if errors.Is(err, errNotRunning) {
		turn, err := s.options.Store.Turn(ctx, reply.TurnID)
		switch {
		case err != nil:
			return false, err
		case turn.State == exchange.StateAccepted || turn.State == exchange.StateRunning: // it is not the turn that the run began with
			return false, errEdited
		case waitsForOperator(turn):
			return false, s.keepDraft(ctx, job, end, late, result)
		}
		return false, s.settle(ctx, job)
	}

	return err == nil, err
}

func (s *replier) settle(ctx context.Context, job queue.Job) error {
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
	})
}

// planned puts into the reply what its adapter decided about it.
func planned(reply exchange.Reply, plan exchange.Plan) exchange.Reply {
	reply.Posts, reply.Open = max(plan.Posts, 1), plan.Open
	return reply
}

// deliveriesOf makes one row per destination.
func deliveriesOf(ctx context.Context, reply exchange.Reply, plan exchange.Plan) []delivery.Record {
	records, parent := make([]delivery.Record, len(plan.Destinations)), telemetry.Traceparent(ctx)
	for i, destination := range plan.Destinations {
		records[i] = delivery.Record{
			ID: newID(), TurnID: reply.TurnID, ReplyID: reply.ID, Agent: reply.Agent, Channel: reply.Channel,
			NativeID: plan.NativeID, Key: destination.Key, Address: destination.Address, Data: destination.Data, Trace: parent,
			State: delivery.StatePending, CreatedAt: reply.CreatedAt, UpdatedAt: reply.CreatedAt,
		}
	}
	return records
}

func insertDeliveries(ctx context.Context, tx Tx, reply exchange.Reply, records []delivery.Record) error {
	for _, record := range records {
		if err := tx.InsertDelivery(ctx, record); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, delivery.FirstJob(record, reply.Message.ThreadID)); err != nil {
			return err
		}
	}
	return nil
}

func stateOf(response normalized.Response) string {
	switch {
	case response.Silent:
		return exchange.StateSilent
	case response.Status == normalized.StatusFailed:
		return exchange.StateFailed
	}
	return exchange.StateAnswered
}

// failure is the answer to the sender when the agent could not give one: a plain sentence, nothing internal.
func failure(turn exchange.TurnRecord, f *fault.Fault) normalized.Response {
	return saying(normalized.Response{
		InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusFailed,
		Error: &normalized.ResponseError{Code: string(f.Kind)},
	}, sayFailed)
}

// What senders read of a failure. That the operator will be told is only said where that is so: the failure is counted in its own transaction.
const (
	sayFailed       = "Sorry, I could not answer this message."
	sayOperatorTold = sayFailed + " The operator will be told."
)

// saying puts the sentence into a failed response.
func saying(response normalized.Response, sentence string) normalized.Response {
	response.Parts = []normalized.Part{normalized.Text(sentence)}
	response.Error = &normalized.ResponseError{Code: response.Error.Code, Message: sentence}
	return response
}

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

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
func (s *replier) ackAfter(agent agents.Entry, turn exchange.TurnRecord) time.Duration {
	channel, able := s.options.Channels.Channel(turn.Channel).(exchange.Acknowledger)
	switch {
	case agent.Settings.AckAfter <= 0, !able, turn.ReplyID != "", turn.Message.RecipientCapabilities.AgentChain != nil:
		return 0
	}
	return max(0, channel.AckAfter(agent.Settings.AckAfter))
}

// mayBeAcknowledged reports whether the end of the turn has to look for an acknowledgement under way.
func (s *replier) mayBeAcknowledged(turn exchange.TurnRecord) bool {
	agent, known := s.options.Agents.Lookup(turn.Agent)
	return known && s.ackAfter(agent, turn) > 0
}

// signOfLife tells the asker once that the turn is being worked on, when the run lasts until the turn is old enough.
// The returned function ends that: afterwards nothing is said any more.
func (s *replier) signOfLife(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (quiet func()) {
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
func (s *replier) acknowledge(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Logger.ErrorContext(ctx, "acknowledgement failed", "error", panicError(p))
		}
	}()

	var response normalized.Response
	response.Parts = []normalized.Part{normalized.Text(agent.Settings.AckText)}
	reply := s.newReply(turn, response.Answering(turn.Message))
	reply.ID, reply.Notice = exchange.DerivedID(turn.ID, "acknowledgement"), exchange.NoticeAck
	plan, err := s.plan(ctx, reply)
	if err == nil && len(plan.Destinations) > 0 {
		err = s.storeAck(ctx, reply, plan)
	}
	if err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "the asker was not told that the message takes long", "error", err)
	}
}

func (s *replier) storeAck(ctx context.Context, reply exchange.Reply, plan exchange.Plan) error {
	reply = planned(reply, plan)
	deliveries := deliveriesOf(ctx, reply, plan)
	s.options.Deliveries.Expect(deliveries, reply)
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		inserted, err := tx.InsertAck(ctx, reply, plan.NativeID)
		if err != nil || !inserted {
			return err
		}
		return insertDeliveries(ctx, tx, reply, deliveries)
	})
}

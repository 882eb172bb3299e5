package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
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

// ending is how a run ends: in a state, with a reply or without a word, and with what else belongs to the transaction.
type ending struct {
	turn          exchange.TurnRecord
	reply         exchange.Reply // without an id: the run says nothing, and an acknowledgement stays possible
	state, reason string
	at            time.Time                              // of an end without a reply
	more          func(ctx context.Context, tx Tx) error // nil = nothing else
	stored        func()                                 // called once the end is committed; nil = nothing to do
	unsent        bool                                   // the reply is kept for those who ask, and goes nowhere
}

func (e ending) says() bool { return e.reply.ID != "" }

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

// conclude ends a run: with an answer, a demand, a request to a tool or calls to other agents. What belongs to the end is stored in one
// transaction that also ends the job, so that a crash at any point leaves either everything or a turn that runs again; a reply with one
// delivery per destination.
func (s *replier) conclude(ctx context.Context, job queue.Job, record *runRecord, end ending) error {
	record.leave()
	turn, reply := end.turn, end.reply
	plan, err := s.planOf(ctx, end)
	if err != nil { // nothing can be sent: the turn ends as a row that the operator finds
		end.state, end.reason, end.more = exchange.StateFailed, notPlanned+err.Error(), nil
	}

	reply = planned(reply, plan)
	end.reply = reply
	deliveries := deliveriesOf(ctx, reply, plan)
	if end.says() {
		s.options.Deliveries.Expect(deliveries, reply)
		if end.reply.Encoded, err = reply.Response.AppendJSON(nil); err != nil { // here, because a transaction keeps others waiting
			return s.unstorable(ctx, job, turn, record, end.reason, fmt.Errorf("encode response: %w", err))
		}
	}
	unknown := false
	err = patient(ctx, func() error {
		err := s.storeEnd(ctx, job, record, end, deliveries, plan)
		if errors.Is(err, errNotRunning) && record.isMarked(ctx) {
			err = s.storeEnd(ctx, job, record, end, deliveries, plan)
		}
		if unknown && end.says() && errors.Is(err, queue.ErrLeaseLost) {
			err = s.isStored(ctx, reply)
		}
		unknown = unknown || fault.OutcomeOf(err) == fault.Unknown
		return err
	})
	switch {
	case errors.Is(err, errNotRunning):
		return s.overtaken(ctx, job, record, end)
	case err != nil:
		return s.unstorable(ctx, job, turn, record, end.reason, err)
	case end.stored != nil:
		end.stored()
	}

	if !end.says() { // it goes on by itself, and those who wait for it go on waiting
		s.logState(ctx, turn, end.state, end.reason)
		return queue.ErrSettled
	}

	finished.WithLabelValues(turn.Agent, end.state).Inc()
	s.logState(ctx, turn, end.state, end.reason)
	s.spend(ctx, turn, reply.Response)
	turn.State, turn.Reason, turn.ReplyID, turn.Response, turn.UpdatedAt = end.state, end.reason, reply.ID, &reply.Response, reply.CreatedAt
	s.broker.finished(turn)
	return queue.ErrSettled
}

// isStored looks for a reply whose commit had no answer and whose job is gone. The lease is lost when another worker has the job.
func (s *replier) isStored(ctx context.Context, reply exchange.Reply) error {
	turn, err := s.options.Store.Turn(ctx, reply.TurnID)
	if err == nil && turn.ReplyID != reply.ID {
		return queue.ErrLeaseLost
	}
	return err
}

// unstorable ends a turn whose answer the database refuses for good: a visible failure instead of running the agent
// again and again. An answer that met a database that is down is given back to the queue.
func (s *replier) unstorable(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, reason string, cause error) error {
	const prefix = "store reply: "
	if errors.Is(cause, errOvertaken) || errors.Is(cause, errTooMany) || errors.Is(cause, queue.ErrLeaseLost) || ctx.Err() != nil || fault.Is(cause, fault.Unavailable) || strings.HasPrefix(reason, prefix) {
		return cause
	}
	return s.reply(ctx, job, turn, record, failure(turn, cause), prefix+cause.Error())
}

func (s *replier) planOf(ctx context.Context, end ending) (exchange.Plan, error) {
	if end.unsent || !end.says() {
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

// errNotRunning rolls back the end of a run whose turn is not as the run began with it, and ends the run of a turn that has ended.
var errNotRunning = errors.New("the turn is not running any more")

// patient repeats what met a database that is down.
func patient(ctx context.Context, work func() error) error {
	for try := 1; ; try++ {
		err := work()
		if err == nil || try == storeTries || !fault.Is(err, fault.Unavailable) || clock.Sleep(ctx, storeWait) != nil {
			return err
		}
	}
}

// closeRun does the one transaction in which a run ends: the job with its fence, an acknowledgement that is not wanted any more, the rows
// and the result of the run, and what the end itself is. A run that never began has no record.
func (s *replier) closeRun(
	ctx context.Context, job queue.Job, record *runRecord, late []exchange.Event, quiet time.Time, end func(Tx) error,
) error {
	var result *exchange.RunResult
	if record != nil {
		result, _ = record.result.ready(ctx, record.blobs)
	}

	return s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		if !quiet.IsZero() {
			if err := tx.CancelAck(ctx, job.Payload, quiet); err != nil {
				return err
			}
		}
		if err := appendLate(ctx, tx, job.Payload, late); err != nil {
			return err
		}
		if err := putResult(ctx, tx, result); err != nil {
			return err
		}
		return end(tx)
	})
}

// storeEnd stores the end of a run if the turn is still as the run began with it; errNotRunning otherwise.
func (s *replier) storeEnd(
	ctx context.Context, job queue.Job, record *runRecord, end ending, deliveries []delivery.Record, plan exchange.Plan,
) error {
	late, missing := record.late()
	if missing {
		late = append([]exchange.Event{record.event()}, late...)
	}

	transition, at := endRun, end.at
	if end.state == exchange.StateWaiting {
		transition = parkTurn
	}
	var quiet time.Time
	if end.says() {
		at = end.reply.CreatedAt
		if s.mayBeAcknowledged(end.turn) {
			quiet = at
		}
	}

	move := transition.Move(end.turn.ID, end.state, end.reason, at)
	move.Attempt, move.Unchanged = end.turn.Attempt, record.unchanged(missing)
	if !slices.ContainsFunc(late, func(event exchange.Event) bool { return event.Kind == exchange.EventDelta }) {
		move.Before, late = late, nil // one statement
	}
	return s.closeRun(ctx, job, record, late, quiet, func(tx Tx) error {
		moved, err := end.move(ctx, tx, move, plan)
		if err != nil {
			return err
		}
		if !moved {
			return errNotRunning
		}
		if end.state == exchange.StateWaiting && record != nil && record.noted.Load() {
			if err := keepMemory(ctx, tx, end.turn.ID); err != nil {
				return err
			}
		}
		if err := end.also(ctx, tx); err != nil {
			return err
		}
		if err := insertDeliveries(ctx, tx, end.reply, deliveries); err != nil || !plan.Spread {
			return err
		}

		rest, err := delivery.SpreadJob(end.reply.ID)
		if err != nil {
			return err
		}
		return tx.Enqueue(ctx, rest)
	})
}

func (e ending) move(ctx context.Context, tx Tx, move Move, plan exchange.Plan) (moved bool, err error) {
	if e.says() {
		return tx.AnswerTurn(ctx, move, e.reply, plan.NativeID)
	}
	return tx.MoveTurn(ctx, move)
}

// overtaken ends a run whose turn someone else changed before its end was stored. A turn that still waits for a run gets one with what is
// in its row now; what was said in a conversation that an operator has taken over is kept for them; otherwise only the job ends.
func (s *replier) overtaken(ctx context.Context, job queue.Job, record *runRecord, end ending) error {
	turn, err := s.options.Store.Turn(ctx, end.turn.ID)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return err
	case err == nil && takesRuns(turn):
		return queue.RetryAfter(time.Millisecond, errEdited)
	}

	keep := func(Tx) error { return nil }
	if err == nil && waitsForOperator(turn) && end.state == exchange.StateAnswered {
		draft := end.reply
		draft.ID = exchange.DerivedID(end.turn.ID, "draft", draft.ID)
		draft.Encoded = nil
		keep = func(tx Tx) error {
			_, err := tx.PutDraft(ctx, draft)
			return err
		}
	}
	return s.abandon(ctx, job, record, keep)
}

// abandon ends the job of a run that has nothing more to say. What the run took stays on record.
func (s *replier) abandon(ctx context.Context, job queue.Job, record *runRecord, keep func(Tx) error) error {
	late, _ := record.late()
	err := patient(ctx, func() error { return s.closeRun(ctx, job, record, late, time.Time{}, keep) })
	if err != nil {
		return err
	}
	return queue.ErrSettled
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

// failure is the answer to the sender when the agent could not give one: a plain sentence and the code of the reason, nothing
// internal.
func failure(turn exchange.TurnRecord, cause error) normalized.Response {
	code, sentence := fault.CodeOf(cause), sayFailed
	if code == normalized.FailedTimeout {
		sentence = sayLate
	}
	return saying(normalized.Response{
		InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusFailed,
		Error: &normalized.ResponseError{Code: code},
	}, sentence)
}

// What senders read of a failure. That the operator will be told is only said where that is so: the failure is counted in its own transaction.
const (
	sayFailed       = "Sorry, I could not answer this message."
	sayLate         = "Sorry, I could not answer this message in time."
	sayOperatorTold = " The operator will be told."
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

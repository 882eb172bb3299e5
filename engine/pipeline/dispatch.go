package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// DispatchKind is the queue kind of calls to other agents; the payload is the call's id, the partition the conversation
// with the agent that is called. A job of it mostly waits: give it many workers and the queue's own schedule.
const DispatchKind = "dispatch"

// Bounds of one turn that asks other agents.
const (
	maxRounds = agents.MaxQuestionRounds
	maxCalls  = agents.MaxQuestions
)

// errTooMany rolls a transaction back that would store more calls than a turn may make.
var errTooMany = errors.New("the turn asked other agents too often")

// asking reports whether the turn waits for other agents.
func asking(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingDispatch
}

// compose looks through a finished response for agents that are to be asked before anything is sent: then the turn waits
// for them, otherwise it goes on to its end. A run that crashes here is made again; what was not stored was not asked.
func (s *Service) compose(
	ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, response normalized.Response,
) error {
	response, parked, err := s.askOthers(ctx, job, agent, turn, record, response)
	if parked || err != nil {
		return err
	}
	return s.finishRun(ctx, job, turn, record, response)
}

// askOthers returns the response to send, unless the turn waits for other agents now: then err is what the run returns.
func (s *Service) askOthers(
	ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, response normalized.Response,
) (out normalized.Response, parked bool, err error) {
	chain, ok := nextHop(agent, turn)
	if !ok {
		return s.strip(ctx, agent, turn, response), false, nil
	}
	calls := s.asked(agent, response)
	if len(calls) == 0 {
		if held, err := s.holds(ctx, turn, response); held || err != nil { // the agents that it mentions would read it
			return response, false, err
		}
		calls, response = s.mentioned(agent, turn, response)
	}
	if len(calls) == 0 {
		return response, false, nil
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i := range calls {
		calls[i] = prepared(calls[i], agent, turn, chain, now)
	}
	err = s.askAll(ctx, job, turn, record, calls)
	switch {
	case !errors.Is(err, errTooMany):
		return response, true, err
	case calls[0].Combine:
		return s.joined(turn, response, unanswered(calls)), false, nil
	}
	return tooOften(turn), false, nil
}

// asked returns the calls that the agent asks for.
func (s *Service) asked(agent agents.Entry, response normalized.Response) (calls []exchange.Dispatch) {
	for _, d := range response.Dispatch {
		calls = append(calls, exchange.Dispatch{To: s.canonical(agent, d.To), Parts: d.Parts})
	}
	return calls
}

// prepared fills in what all calls of one round share.
func prepared(
	d exchange.Dispatch, agent agents.Entry, turn exchange.TurnRecord, chain normalized.AgentChain, now time.Time,
) exchange.Dispatch {
	d.ID, d.TurnID, d.State, d.CreatedAt, d.UpdatedAt = newID(), turn.ID, exchange.DispatchPending, now, now
	d.Agent, d.From, d.Sender, d.Chain = turn.Agent, agent.Profile.Address, turn.Message.Sender, chain
	if d.To == "" { // the draft of a combined answer
		d.State = exchange.DispatchDone
	}
	d.ThreadID = dispatchThread(turn.Agent, turn.ThreadID, d.To)
	return d
}

// dispatchThread is the conversation with another agent: one for each of our own conversations, so that the other agent
// keeps its context and people do not read each other's.
func dispatchThread(agent, threadID, to string) string {
	sum := sha256.New()
	for _, text := range []string{agent, threadID, to} {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	return "dispatch-" + hex.EncodeToString(sum.Sum(nil))
}

// askAll parks the turn and stores the calls. A database that is down is given some time: the agent's run was paid for.
func (s *Service) askAll(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, calls []exchange.Dispatch) error {
	for try := 1; ; try++ {
		err := s.storeCalls(ctx, job, turn, record, calls)
		switch {
		case err == nil:
			return queue.ErrSettled
		case errors.Is(err, errNotRunning): // cancelled while the agent ran
			if err := s.settle(ctx, job); err != nil {
				return err
			}
			return queue.ErrSettled
		case try == storeTries || !fault.Is(err, fault.Unavailable) || clock.Sleep(ctx, storeWait) != nil:
			return err
		}
	}
}

// storeCalls does the one transaction: the job ends, the turn waits, the calls are there with their jobs.
func (s *Service) storeCalls(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, calls []exchange.Dispatch) error {
	late, _ := record.late()
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		if err := appendLate(ctx, tx, turn.ID, late); err != nil {
			return err
		}
		move := parkTurn.Move(turn.ID, exchange.StateWaiting, exchange.WaitingDispatch, calls[0].CreatedAt)
		move.Attempt = turn.Attempt
		moved, err := tx.MoveTurn(ctx, move)
		if err != nil {
			return err
		}
		if !moved {
			return errNotRunning
		}
		return insertCalls(ctx, tx, turn.ID, calls)
	})
}

func insertCalls(ctx context.Context, tx Tx, turnID string, calls []exchange.Dispatch) error {
	number, err := lastNumber(ctx, tx, turnID, calls)
	if err != nil {
		return err
	}
	for _, d := range calls {
		if d.To != "" {
			number++
			d.Number = number
		}
		if err := tx.InsertDispatch(ctx, d); err != nil {
			return err
		}
		if d.To == "" {
			continue
		}
		if err := called(ctx, tx, d); err != nil {
			return err
		}
	}
	return nil
}

// called returns a call to the queue.
func called(ctx context.Context, tx Tx, d exchange.Dispatch) error {
	body, err := json.Marshal(map[string]string{"id": d.ID, "to": d.To})
	if err != nil {
		return err
	}
	event := exchange.Event{Kind: exchange.EventDispatchCalled, Body: body, At: d.CreatedAt}
	if err := tx.AppendEvents(ctx, d.TurnID, []exchange.Event{event}); err != nil {
		return err
	}
	return tx.Enqueue(ctx, queue.NewJob{
		ID: d.ID, Kind: DispatchKind, Partition: DispatchKind + " " + d.ThreadID, Payload: d.ID, Group: d.Agent, Member: d.To,
	})
}

// lastNumber counts what the turn has asked so far; errTooMany when the new calls are over a bound.
func lastNumber(ctx context.Context, tx Tx, turnID string, calls []exchange.Dispatch) (int, error) {
	earlier, err := tx.Dispatches(ctx, turnID)
	if err != nil {
		return 0, err
	}
	rounds := map[int64]bool{}
	number, fresh := 0, 0
	for _, d := range earlier {
		rounds[d.CreatedAt.UnixMicro()] = true
		number = max(number, d.Number)
	}
	for _, d := range calls {
		if d.To != "" {
			fresh++
		}
	}
	if len(rounds) >= maxRounds || number+fresh > maxCalls {
		return 0, errTooMany
	}
	return number, nil
}

// tooOften is the end of a turn that asks and asks.
func tooOften(turn exchange.TurnRecord) normalized.Response {
	return sentence(turn, "dispatch:limit", "Sorry, I asked other agents several times and still have no answer.")
}

// sentence is a failure in plain words.
func sentence(turn exchange.TurnRecord, code, words string) normalized.Response {
	return normalized.Response{
		InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(words)},
		Error: &normalized.ResponseError{Code: code, Message: words},
	}
}

package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// SpreadKind is the queue kind of jobs that make deliveries of one reply to many, one piece at a time: to followers, or
// to everybody who has to hear of an edit or a deletion.
const SpreadKind = "delivery.spread"

// piece bounds the deliveries of one transaction, so that nobody waits long for the database.
const piece = 100

// spread is the payload of such a job.
type spread struct {
	Reply    string `json:"reply"`
	Action   string `json:"action,omitempty"`
	Revision int    `json:"revision,omitempty"`
	After    string `json:"after,omitempty"` // where the next piece begins
}

func (s spread) job() (queue.NewJob, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return queue.NewJob{}, fmt.Errorf("encode spread: %w", err)
	}
	return queue.NewJob{ID: newID(), Kind: SpreadKind, Partition: s.Reply, Payload: string(payload)}, nil
}

// SpreadJob is the job that delivers a reply to the destinations beyond its plan.
func SpreadJob(replyID string) (queue.NewJob, error) { return spread{Reply: replyID}.job() }

// Spread makes the next deliveries of a reply. They, the job for the rest and the end of this one are one transaction.
func (s *Service) Spread(ctx context.Context, job queue.Job) error {
	var at spread
	if err := json.Unmarshal([]byte(job.Payload), &at); err != nil {
		return queue.GiveUp("the stored job cannot be read", err)
	}
	reply, nativeID, err := s.options.Store.Reply(ctx, at.Reply)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the reply is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	made, err := s.piece(ctx, at, reply, nativeID)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	err = s.options.Store.InTx(ctx, func(tx Tx) error { return made.store(ctx, tx, job, reply) })
	if err != nil {
		return err
	}
	return queue.ErrSettled
}

// prepared is one piece, ready for its transaction.
type prepared struct {
	records []Record
	before  []Record // the deliveries of the reply that the records follow; nil for the reply itself
	rest    *spread
}

func (s *Service) piece(ctx context.Context, at spread, reply exchange.Reply, nativeID string) (prepared, error) {
	if at.Action != exchange.ActionSend {
		return s.told(ctx, at, reply)
	}
	channel, able := s.options.Channels.Channel(reply.Channel).(exchange.Spreader)
	if !able || !reply.DeletedAt.IsZero() {
		return prepared{}, nil
	}
	destinations, next, err := channel.Spread(ctx, reply, at.After)
	if err != nil {
		return prepared{}, err
	}
	var made prepared
	for _, one := range destinations {
		if s.Dead(ctx, reply.Channel, one.Key) {
			continue
		}
		made.records = append(made.records, newRecord(reply, nativeID, one))
	}
	if next != "" {
		at.After = next
		made.rest = &at
	}
	return made, nil
}

// told are those who have the reply, or may have it.
func (s *Service) told(ctx context.Context, at spread, reply exchange.Reply) (prepared, error) {
	before, err := s.options.Store.Sendings(ctx, reply, at.After, piece)
	if err != nil {
		return prepared{}, err
	}
	made := prepared{before: before}
	for _, old := range before {
		record := newRecord(reply, old.NativeID, exchange.Destination{Key: old.Key, Address: old.Address, Data: old.Data})
		record.Action, record.Revision, record.Bulk = at.Action, at.Revision, old.Bulk
		made.records = append(made.records, record)
	}
	if len(before) == piece {
		at.After = before[piece-1].ID
		made.rest = &at
	}
	return made, nil
}

func newRecord(reply exchange.Reply, nativeID string, to exchange.Destination) Record {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return Record{
		ID: newID(), TurnID: reply.TurnID, ReplyID: reply.ID, Agent: reply.Agent, Channel: reply.Channel,
		NativeID: nativeID, Key: to.Key, Address: to.Address, Data: to.Data, Bulk: true,
		State: StatePending, CreatedAt: now, UpdatedAt: now,
	}
}

func (p prepared) store(ctx context.Context, tx Tx, job queue.Job, reply exchange.Reply) error {
	for i, record := range p.records {
		if p.before != nil {
			needed, err := mustHear(ctx, tx, p.before[i], record.Action, reply.Message.ThreadID)
			if err != nil {
				return err
			}
			if !needed {
				continue
			}
		}
		if err := tx.InsertDelivery(ctx, record); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, FirstJob(record, reply.Message.ThreadID)); err != nil {
			return err
		}
	}
	if p.rest != nil {
		rest, err := p.rest.job()
		if err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, rest); err != nil {
			return err
		}
	}
	return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
}

// takenBack is the reason of deliveries that end because their reply was deleted.
const takenBack = "the answer was taken back"

// mustHear reports whether a destination has to hear of the change. A deletion also ends what is still on its way there:
// where no attempt was begun, nobody has anything to delete.
func mustHear(ctx context.Context, tx Tx, sent Record, action, threadID string) (bool, error) {
	switch sent.State {
	case StateDelivered:
		return true, nil
	case StateDead:
		return false, nil
	case StateCancelled:
		return sent.Attempt > 0, nil
	}
	if action != exchange.ActionDelete {
		return true, nil
	}
	moved, err := tx.MoveDelivery(ctx, Move{
		ID: sent.ID, From: unfinished, To: StateCancelled, Reason: takenBack, Attempt: sent.Attempt, At: time.Now(),
		Event: event(exchange.EventDeliveryCanceled, eventBody{Destination: sent.Address, Reason: takenBack}),
	})
	if err != nil || !moved {
		return true, err
	}
	waited, err := tx.RemoveJob(ctx, sent.kind(), Partition(sent.Key, sent.Agent, threadID), sent.ID)
	return !waited || sent.Attempt > 0, err
}

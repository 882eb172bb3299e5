package inbox

import (
	"context"

	"github.com/google/uuid"

	"inbox/adapters/activitypub"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Queue kinds of activities that are not replies, such as Accept; those to many followers wait behind the others.
const (
	activityJob     = "activity"
	activityBulkJob = "activity.bulk"
)

// outbox keeps an activity in the durable queue until its receiver has it.
type outbox struct{ store *store.Store }

// SendLater stores the activity; it is sent after the commit, in order inside the partition.
func (o outbox) SendLater(ctx context.Context, partition, payload string) error {
	job := laterJob(activitypub.Later{Partition: partition, Payload: payload})
	return o.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error { return tx.Enqueue(ctx, job) })
}

func laterJob(later activitypub.Later) queue.NewJob {
	kind := activityJob
	if later.Bulk {
		kind = activityBulkJob
	}
	return queue.NewJob{ID: uuid.Must(uuid.NewV7()).String(), Kind: kind, Partition: kind + " " + later.Partition, Payload: later.Payload}
}

// sendActivity is the job: one attempt under the rules of deliveries. What it asks for besides is stored in the
// transaction that ends it.
func (s *Server) sendActivity(adapter *activitypub.Adapter) queue.Handler {
	return func(ctx context.Context, job queue.Job) error {
		attempt := func(ctx context.Context) error {
			more, err := adapter.Perform(ctx, job.Payload, job.Attempt)
			if err != nil || len(more) == 0 {
				return err
			}
			return s.storeLater(ctx, job, more)
		}
		if host := activitypub.LaterHost(job.Payload); host != "" {
			return s.delivery.Guard(ctx, job, activitypub.ChannelName, host, attempt)
		}
		err := attempt(ctx)
		if f := fault.Of(err); err != nil && ctx.Err() == nil && f.Permanent {
			return queue.GiveUp(f.Public, err)
		}
		return err
	}
}

func (s *Server) storeLater(ctx context.Context, job queue.Job, more []activitypub.Later) error {
	err := s.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		for _, later := range more {
			if err := tx.Enqueue(ctx, laterJob(later)); err != nil {
				return err
			}
		}
		return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
	})
	if err != nil {
		return err
	}
	return queue.ErrSettled
}

package inbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// activityJob is the queue kind of activities that are not replies, such as Accept.
const activityJob = "activity"

// outbox keeps an activity in the durable queue until its receiver has it.
type outbox struct{ store *store.Store }

// SendLater stores the activity; it is sent after the commit, in order inside the partition.
func (o outbox) SendLater(ctx context.Context, partition, payload string) error {
	job := queue.NewJob{
		ID: uuid.Must(uuid.NewV7()).String(), Kind: activityJob, Partition: activityJob + " " + partition, Payload: payload,
	}
	return o.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error { return tx.Enqueue(ctx, job) })
}

// sendActivity is the job: one attempt, classed for the queue.
func sendActivity(adapter *activitypub.Adapter) queue.Handler {
	return func(ctx context.Context, job queue.Job) error {
		err := adapter.SendActivity(ctx, job.Payload)
		if err == nil || ctx.Err() != nil {
			return err
		}
		f := fault.Of(err)
		switch {
		case f.Permanent:
			return queue.GiveUp(f.Public, err)
		case f.RetryAfter > 0:
			return queue.RetryAfter(max(f.RetryAfter, time.Second), err)
		}
		return err
	}
}

package activitypub

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/internal/fault"
)

// Kinds of a later job.
const (
	jobActivity = "activity" // post an activity that is no reply: Accept
	jobAddress  = "address"  // ask WebFinger for the address of an actor
)

// laterJob is the payload that SendActivity gets back.
type laterJob struct {
	Kind     string          `json:"kind"`
	Agent    string          `json:"agent,omitempty"`
	Actor    string          `json:"actor"`
	Inbox    string          `json:"inbox,omitempty"`
	Activity json.RawMessage `json:"activity,omitempty"`
}

// sendLater queues an activity to an actor's personal inbox. Order is kept between one agent and one actor.
func (a *Adapter) sendLater(ctx context.Context, agent string, to *remoteActor, activity any) error {
	body, err := encode(activity)
	if err != nil {
		return err
	}
	return a.schedule(ctx, "activitypub:"+agent+":"+to.ID, laterJob{jobActivity, agent, to.ID, to.Inbox, body})
}

func (a *Adapter) scheduleCheck(ctx context.Context, actor string) error {
	return a.schedule(ctx, "activitypub:address:"+hostOf(actor), laterJob{Kind: jobAddress, Actor: actor})
}

func (a *Adapter) schedule(ctx context.Context, partition string, job laterJob) error {
	payload, err := encode(job)
	if err != nil {
		return err
	}
	return a.options.Outbox.SendLater(ctx, partition, string(payload))
}

// SendActivity is the body of a job that the Outbox took: it makes one attempt. Its errors are classed with
// fault.RetryIn and fault.GiveUp.
func (a *Adapter) SendActivity(ctx context.Context, payload string) error {
	var job laterJob
	if err := json.Unmarshal([]byte(payload), &job); err != nil {
		return fault.GiveUp("the stored activity cannot be read", err)
	}
	switch job.Kind {
	case jobMove:
		return a.checkMove(ctx, job.Actor, job.Inbox)
	case jobAddress:
		return a.checkAddress(ctx, job.Actor)
	case jobActivity:
		if err := a.allowed(ctx, job.Agent, destination{Actor: job.Actor, Inbox: job.Inbox}); err != nil {
			return err
		}
		_, err := a.post(ctx, parcel{agent: job.Agent, actor: job.Actor, inbox: job.Inbox, body: job.Activity})
		return err
	}
	return fault.GiveUp("unknown kind of stored activity", fmt.Errorf("kind %q", job.Kind))
}

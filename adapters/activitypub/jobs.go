package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Kinds of a later job.
const (
	jobActivity = "activity" // post an activity that is no reply: Accept
	jobAddress  = "address"  // ask WebFinger for the address of an actor
	jobAnnounce = "announce" // queue an activity for all followers and recent peers, piece by piece
)

// laterJob is the payload that Perform gets back.
type laterJob struct {
	Kind     string          `json:"kind"`
	Agent    string          `json:"agent,omitempty"`
	Actor    string          `json:"actor"`
	Inbox    string          `json:"inbox,omitempty"`
	Activity json.RawMessage `json:"activity,omitempty"`

	Shared bool           `json:"shared,omitempty"` // the inbox is that of a server
	Once   string         `json:"once,omitempty"`   // id of an announced activity, which an inbox gets once
	Order  string         `json:"order,omitempty"`  // announced activities of the same order come to an inbox one after the other
	Pin    *pinned        `json:"pin,omitempty"`    // pin: what was changed
	From   followerCursor `json:"from,omitzero"`    // announce: where the next followers begin
	Peers  *peerCursor    `json:"peers,omitempty"`  // announce: followers are done, these come next
}

// peerCursor is a cursor in the inboxes that got something lately.
type peerCursor struct {
	Since time.Time `json:"since"`
	After string    `json:"after"`
}

// sendLater queues an activity to an actor's personal inbox. Order is kept between one agent and one actor.
func (s *site) sendLater(ctx context.Context, agent string, to *remoteActor, activity any) error {
	body, err := document.Encode(activity)
	if err != nil {
		return err
	}
	return s.schedule(ctx, "activitypub:"+agent+":"+to.ID, laterJob{Kind: jobActivity, Agent: agent, Actor: to.ID, Inbox: to.Inbox, Activity: body})
}

func (s *site) schedule(ctx context.Context, partition string, job laterJob) error {
	payload, err := document.Encode(job)
	if err != nil {
		return err
	}
	return s.options.Outbox.SendLater(ctx, partition, string(payload))
}

// Perform makes the given attempt, counted from 1, of a job that the Outbox took. What it returns is to be stored in the
// transaction that ends the job. Errors are classed with fault.RetryIn and fault.GiveUp.
func (a *Adapter) Perform(ctx context.Context, payload string, attempt int) ([]Later, error) {
	var job laterJob
	if err := json.Unmarshal([]byte(payload), &job); err != nil {
		return nil, fault.GiveUp("the stored activity cannot be read", err)
	}

	switch job.Kind {
	case jobMove:
		return nil, a.moves.checkMove(ctx, job.Actor, job.Inbox)
	case jobObject:
		return nil, a.notes.receiveNamed(ctx, job, attempt)
	case jobFollow:
		return nil, a.follows.decideFollow(ctx, job)
	case jobAddress:
		return nil, a.actors.checkAddress(ctx, job.Actor)
	case jobActivity:
		return nil, a.outbox.sendStored(ctx, job, attempt)
	case jobPin:
		return a.outbox.announcePin(ctx, job)
	case jobAnnounce:
		return a.outbox.announcePiece(ctx, job)
	}

	return nil, fault.GiveUp("unknown kind of stored activity", fmt.Errorf("kind %q", job.Kind))
}

// LaterTo returns where a stored activity goes; without a key it goes nowhere.
func LaterTo(payload string) exchange.Destination {
	var job laterJob
	if json.Unmarshal([]byte(payload), &job) != nil || job.Kind != jobActivity {
		return exchange.Destination{}
	}
	return exchange.Destination{Key: document.HostOf(job.Inbox), Address: job.Inbox}
}

func (o *outbox) sendStored(ctx context.Context, job laterJob, attempt int) error {
	if err := o.allowed(ctx, job.Agent, destination{Actor: job.Actor, Inbox: job.Inbox, Shared: job.Shared}); err != nil {
		return err
	}
	if job.Once != "" {
		if _, told, err := o.options.State.Get(ctx, toldNamespace(job.Once), job.Inbox); err != nil || told {
			return err
		}
	}

	_, err := o.transport.post(ctx, outgoing{agent: job.Agent, actor: job.Actor, inbox: job.Inbox, body: job.Activity, attempt: attempt, shared: job.Shared})
	if err == nil && job.Once != "" {
		_ = o.options.State.Put(ctx, toldNamespace(job.Once), job.Inbox, []byte("{}"), o.now().Add(toldLife))
	}
	return err
}

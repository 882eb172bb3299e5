package activitypub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
)

const (
	toldPrefix  = "activitypub.told." // + hash of the activity's id: inbox → empty
	toldLife    = 14 * 24 * time.Hour
	recentPeers = 30 * 24 * time.Hour
	peerPage    = 100
)

// Recent knows where something was delivered lately.
type Recent interface {
	// RecentAddresses gives inboxes that took something of the agent since the instant, in byte order after the given one.
	RecentAddresses(ctx context.Context, agent string, since time.Time, after string, limit int) ([]string, error)
}

// announceActor sends the actor as it is now to its followers and to those who heard of it lately.
func (p *profiles) announceActor(ctx context.Context, agent string) error {
	profile, known := p.options.Directory.Agent(agent)
	if !known {
		return fault.Newf(fault.NotFound, "there is no agent %q", agent)
	}
	key, err := p.keys.key(ctx, profile.Name)
	if err != nil {
		return err
	}
	moved, err := p.movedTo(ctx, profile.Name)
	if err != nil {
		return err
	}
	actor := p.agentActor(profile, key, moved)
	context := actor.Context
	actor.Context = nil
	now := p.now().UTC()
	update := struct {
		Context   []any         `json:"@context"`
		ID        string        `json:"id"`
		Type      string        `json:"type"`
		Actor     string        `json:"actor"`
		To        []string      `json:"to"`
		Cc        []string      `json:"cc"`
		Published string        `json:"published"`
		Object    actorDocument `json:"object"`
	}{
		context, actor.ID + "#updates/" + strconv.FormatInt(now.UnixMilli(), 10), "Update", actor.ID, []string{document.Public},
		[]string{actor.ID + "/followers"}, now.Format(time.RFC3339), actor,
	}
	return p.outbox.announce(ctx, profile.Name, update.ID, update, true)
}

// announce queues an activity for everybody who follows the agent, and with peers for those who heard of it lately. All
// of it is durable: a crash repeats at most a piece, which the receivers recognise by the activity's id.
func (o *outbox) announce(ctx context.Context, agent, id string, activity any, peers bool) error {
	job, err := o.announcement(ctx, agent, id, activity, o.now())
	if err != nil {
		return err
	}
	if peers && o.options.Recent != nil {
		job.Peers = &peerPiece{Since: o.now().Add(-recentPeers).UTC()}
	}
	return o.schedule(ctx, "activitypub:announce:"+id, job)
}

// announcement is the job that queues an activity for the followers, with its proof.
func (o *outbox) announcement(ctx context.Context, agent, id string, activity any, at time.Time) (laterJob, error) {
	body, err := document.Encode(activity)
	if err != nil {
		return laterJob{}, err
	}
	body, err = o.keys.prove(ctx, agent, body, at)
	return laterJob{Kind: jobAnnounce, Agent: agent, Activity: body, Once: id}, err
}

// announcePiece queues the activity for the next inboxes. Those of recent peers come first; an inbox that is both gets
// it once.
func (o *outbox) announcePiece(ctx context.Context, job laterJob) (more []Later, err error) {
	var places []destination
	rest := true
	if job.Peers != nil {
		places, err = o.peerInboxes(ctx, &job)
	} else {
		places, rest, err = o.follows.followerInboxes(ctx, job.Agent, &job.From)
	}
	if err != nil {
		return nil, fault.RetryIn(0, "our own store did not answer", err)
	}
	order := cmp.Or(job.Order, "activitypub:announced:"+job.Once)
	for _, place := range places {
		send := laterJob{
			Kind: jobActivity, Agent: job.Agent, Actor: place.Actor, Inbox: place.Inbox, Shared: place.Shared,
			Activity: job.Activity, Once: job.Once,
		}
		if more, err = addLater(more, order+":"+place.Inbox, send); err != nil {
			return nil, err
		}
	}
	if !rest {
		return more, nil
	}
	return addLater(more, cmp.Or(job.Order, "activitypub:announce:"+job.Once), job)
}

func (o *outbox) peerInboxes(ctx context.Context, job *laterJob) (places []destination, err error) {
	addresses, err := o.options.Recent.RecentAddresses(ctx, job.Agent, job.Peers.Since, job.Peers.After, peerPage)
	if err != nil {
		return nil, err
	}
	for _, inbox := range addresses {
		if o.isRemote(inbox) && o.admits(document.HostOf(inbox)) {
			places = append(places, destination{Inbox: inbox, Shared: true})
		}
		job.Peers.After = inbox
	}
	if len(addresses) < peerPage {
		job.Peers = nil
	}
	return places, nil
}

// toldNamespace names the inboxes that have an announced activity. Ids are longer than a namespace may be.
func toldNamespace(id string) string {
	sum := sha256.Sum256([]byte(id))
	return toldPrefix + hex.EncodeToString(sum[:16])
}

func addLater(list []Later, partition string, job laterJob) ([]Later, error) {
	payload, err := document.Encode(job)
	return append(list, Later{Partition: partition, Payload: string(payload), Bulk: true}), err
}

package activitypub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
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
	// RecentAddresses returns the inboxes that took something of the agent by a channel since the instant, in byte order after
	// the given one.
	RecentAddresses(ctx context.Context, channel, agent string, since time.Time, after string, limit int) ([]string, error)
}

// announce queues an activity for everyone who follows the agent, and with peers for those who heard of it lately. All
// of it is durable: a crash repeats at most a piece, which the receivers recognise by the activity's id.
func (o *outbox) announce(ctx context.Context, agent, id string, activity any, peers bool) error {
	job, err := o.announcement(ctx, agent, id, activity, o.now())
	if err != nil {
		return err
	}

	if peers && o.options.Recent != nil {
		job.Peers = &peerCursor{Since: o.now().Add(-recentPeers).UTC()}
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
	var targets []destination
	rest := true
	if job.Peers != nil {
		targets, err = o.peerInboxes(ctx, &job)
	} else {
		targets, rest, err = o.follows.followerInboxes(ctx, job.Agent, &job.From)
	}
	if err != nil {
		return nil, fault.RetryIn(0, "our own store did not answer", err)
	}

	order := cmp.Or(job.Order, "activitypub:announced:"+job.Once)
	for _, target := range targets {
		send := laterJob{
			Kind: jobActivity, Agent: job.Agent, Actor: target.Actor, Inbox: target.Inbox, Shared: target.Shared,
			Activity: job.Activity, Once: job.Once,
		}
		if more, err = addLater(more, order+":"+target.Inbox, send); err != nil {
			return nil, err
		}
	}

	if !rest {
		return more, nil
	}
	return addLater(more, cmp.Or(job.Order, "activitypub:announce:"+job.Once), job)
}

func (o *outbox) peerInboxes(ctx context.Context, job *laterJob) (targets []destination, err error) {
	addresses, err := o.options.Recent.RecentAddresses(ctx, ChannelName, job.Agent, job.Peers.Since, job.Peers.After, peerPage)
	if err != nil {
		return nil, err
	}

	for _, inbox := range addresses {
		if o.isRemote(inbox) && o.admits(document.HostOf(inbox)) {
			targets = append(targets, destination{Inbox: inbox, Shared: true})
		}
		job.Peers.After = inbox
	}

	if len(addresses) < peerPage {
		job.Peers = nil
	}
	return targets, nil
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

// MaxFeatured bounds the pinned answers of one agent: what Mastodon shows.
const MaxFeatured = 5

// FeaturedNamespace holds what the operator pinned on the profile of an agent: reply id → empty.
func FeaturedNamespace(agent string) string { return "activitypub.featured." + agent }

// PinTurn is the document of an agent that everyone writes first who pins or unpins an answer, in the transaction of the
// change: so changes of one agent come one after the other on any number of nodes, and their jobs with them.
const PinTurn = "activitypub.featured"

// jobPin is a change of what is pinned.
const jobPin = "pin"

// pinned is a change of what is pinned on the profile of an agent.
type pinned struct {
	Reply string    `json:"reply"`
	Off   bool      `json:"off,omitempty"` // it was taken off
	At    time.Time `json:"at"`
}

// PinChange makes the job (see Outbox) that tells the followers of an agent that an answer was pinned, or taken off: a
// command has no keys to sign with. The change is unique for the agent and becomes the end of the activity's id. The job
// belongs in the transaction that changes the document in FeaturedNamespace.
func PinChange(agent, replyID, change string, on bool, at time.Time) (Later, error) {
	payload, err := document.Encode(laterJob{
		Kind: jobPin, Agent: agent, Once: change, Pin: &pinned{Reply: replyID, Off: !on, At: at.UTC().Truncate(time.Second)},
	})
	return Later{Partition: pinOrder(agent), Payload: string(payload)}, err
}

// pinOrder keeps the changes of an agent in order, to each inbox too: a Remove that overtakes its Add is lost, and the
// answer stays pinned there for good.
func pinOrder(agent string) string { return "activitypub:featured:" + agent }

// pinActivity changes the collection "featured" (ActivityPub, sections 7.8 and 7.9; target and object as Mastodon sends
// and reads them).
type pinActivity struct {
	Context   []any    `json:"@context"`
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	Actor     string   `json:"actor"`
	Published string   `json:"published"`
	To        []string `json:"to"`
	Cc        []string `json:"cc"`
	Object    string   `json:"object"`
	Target    string   `json:"target"`
}

// announcePin tells the followers of a change. An answer that was taken back since is not pinned any more: its Delete says
// so.
func (o *outbox) announcePin(ctx context.Context, job laterJob) ([]Later, error) {
	profile, known := o.options.Directory.Agent(job.Agent)
	if !known || job.Pin == nil {
		return nil, fault.GiveUp("there is no agent "+job.Agent, nil)
	}

	kind := "Remove"
	if !job.Pin.Off {
		kind = "Add"
		reply, _, err := o.options.Replies.Reply(ctx, job.Pin.Reply)
		gone := fault.Is(err, fault.NotFound)
		if err != nil && !gone {
			return nil, fault.RetryIn(0, "our own store did not answer", err)
		}
		if gone || !o.featurable(reply, profile.Name) {
			return nil, nil
		}
	}

	actor := o.actorIRI(profile.Name)
	change := pinActivity{
		Context: []any{document.ActivityStreams, signature.IntegrityContext}, ID: actor + "#featured/" + job.Once, Type: kind, Actor: actor,
		Published: job.Pin.At.Format(time.RFC3339), To: []string{document.Public}, Cc: []string{actor + "/followers"},
		Object: o.noteIRI(job.Pin.Reply), Target: actor + "/featured",
	}
	announced, err := o.announcement(ctx, profile.Name, change.ID, change, job.Pin.At)
	if err != nil {
		return nil, fault.RetryIn(0, "the activity could not be signed", err)
	}

	announced.Order = pinOrder(profile.Name)
	return addLater(nil, announced.Order, announced)
}

// featurable reports whether an answer may stand on the profile of an agent.
func (o *outbox) featurable(reply exchange.Reply, agent string) bool {
	return reply.DeletedAt.IsZero() && strings.EqualFold(reply.Agent, agent) && o.published(reply)
}

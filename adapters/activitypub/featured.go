package activitypub

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
)

// MaxFeatured bounds the pinned answers of one agent: what Mastodon shows.
const MaxFeatured = 5

// FeaturedNamespace holds what the operator pinned on the profile of an agent: reply id → empty.
func FeaturedNamespace(agent string) string { return "activitypub.featured." + agent }

// PinTurn is the document of an agent that everybody writes first who pins or unpins an answer, in the transaction of the
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

// serveFeatured shows the notes that the operator pinned, newest first.
func (c *collections) serveFeatured(w http.ResponseWriter, r *http.Request, agent exchange.AgentProfile) {
	ids, _, err := c.options.State.List(r.Context(), FeaturedNamespace(agent.Name), "", MaxFeatured)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}
	slices.Reverse(ids) // ids begin with their time
	featured := []note{}
	for _, id := range ids {
		reply, _, err := c.options.Replies.Reply(r.Context(), id)
		if err != nil || !c.outbox.featurable(reply, agent.Name) {
			continue
		}
		if made, err := c.renderer.render(reply, 1, c.renderer.knownPeople(r.Context(), reply), withoutAddress); err == nil {
			featured = append(featured, made)
		}
	}
	c.writeCollection(w, r, collection{
		Context: noteContext, ID: c.actorIRI(agent.Name) + "/featured", TotalItems: int64(len(featured)), OrderedItems: &featured,
	})
}

package activitypub

import (
	"context"
	"strconv"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Revisions reports what can be changed about answers. It is all that a program without an adapter needs to edit them.
type Revisions struct {
	PostLength int // as Options.PostLength
}

// Revisable implements exchange.Reviser: every note can be changed.
func (r Revisions) Revisable(reply exchange.Reply, nativeID string) error {
	if !isNote(reply) || nativeID == "" {
		return fault.New(fault.Unsupported, "nothing was sent that could be changed")
	}
	return nil
}

// PostsOf implements exchange.Reviser. A chain does not grow: a post that was deleted has its tombstone for good.
func (r Revisions) PostsOf(reply exchange.Reply) int {
	limit := r.PostLength
	if limit == 0 {
		limit = notetext.DefaultLength
	}
	return len(notetext.Split(reply.Response.Parts, limit, max(reply.Posts, 1)))
}

// tombstone is what is left of a note (ActivityStreams Vocabulary, section 3).
type tombstone struct {
	Context    any    `json:"@context,omitempty"`
	ID         string `json:"id"`
	Type       string `json:"type"`
	FormerType string `json:"formerType"`
	Deleted    string `json:"deleted"`
}

func (r *renderer) tombstone(reply exchange.Reply, post int) tombstone {
	at := reply.DeletedAt
	if at.IsZero() {
		at = reply.EditedAt // the edit left fewer posts
	}

	former := "Note"
	if asked, err := readRoute(reply.Route); err == nil {
		former = r.typeOf(reply, asked)
	}
	return tombstone{ID: r.postIRI(reply.ID, post), Type: "Tombstone", FormerType: former, Deleted: at.UTC().Format(time.RFC3339)}
}

// deletion is the Delete of a note.
func (o *outbox) deletion(ctx context.Context, reply exchange.Reply, post int, people []person) ([]byte, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, err
	}

	var addressed note
	addressed.address(o.replyVisibility(reply, asked), asked.withAsker(people), o.followersOf(reply.Agent))
	grave := o.renderer.tombstone(reply, post)
	body, err := document.Encode(struct {
		Context []any     `json:"@context"`
		ID      string    `json:"id"`
		Type    string    `json:"type"`
		Actor   string    `json:"actor"`
		To      []string  `json:"to"`
		Cc      []string  `json:"cc"`
		Object  tombstone `json:"object"`
	}{noteContext, grave.ID + "#delete", "Delete", o.actorIRI(reply.Agent), addressed.To, addressed.Cc, grave})
	if err != nil {
		return nil, err
	}

	return o.keys.prove(ctx, reply.Agent, body, deletedAt(reply))
}

func deletedAt(reply exchange.Reply) time.Time {
	if reply.DeletedAt.IsZero() {
		return reply.EditedAt
	}
	return reply.DeletedAt
}

// provenUpdate is the Update of an edited note. Its id counts the edits.
func (o *outbox) provenUpdate(ctx context.Context, reply exchange.Reply, made note) ([]byte, error) {
	update := o.renderer.activity(made)
	update.ID, update.Type = made.ID+"#updates/"+strconv.Itoa(reply.Revision), "Update"
	update.Published = made.Updated
	body, err := document.Encode(update)
	if err != nil {
		return nil, err
	}
	return o.keys.prove(ctx, reply.Agent, body, reply.EditedAt)
}

package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Revisions says what can be changed about answers. It is all that a program without an adapter needs to edit them.
type Revisions struct {
	PostLength int // as Options.PostLength
}

var _ exchange.Reviser = Revisions{}

// Revisable implements exchange.Reviser: every note can be changed.
func (r Revisions) Revisable(reply exchange.Reply, nativeID string) error {
	if !ownWay(reply) || nativeID == "" {
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
	people = append([]person{{Address: asked.Address, Actor: asked.Actor, Profile: asked.Profile}}, people...)
	addressed.address(o.visibilityOf(reply, asked), people, o.followersOf(reply.Agent))
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

// errTombstone says that a note was taken back.
var errTombstone = errors.New("the note was deleted")

// postOf reads which post of the chain is asked for.
func (c *collections) postOf(r *http.Request, reply exchange.Reply) (int, error) {
	post := 1
	if text := httpserver.Param(r, "post"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil || number < 2 || number > notetext.MaxPosts || strconv.Itoa(number) != text {
			return 0, fault.New(fault.NotFound, "no such object")
		}
		post = number
	}
	switch {
	case !reply.DeletedAt.IsZero() && post <= max(reply.Posts, 1), post > max(reply.Posts, 1) && !reply.EditedAt.IsZero():
		return post, fault.Wrap(fault.Gone, "the note was deleted", fmt.Errorf("%w %d", errTombstone, post))
	case post > max(reply.Posts, 1):
		return 0, fault.New(fault.NotFound, "no such object")
	}
	return post, nil
}

// refuseNote answers 410 with the tombstone for a note that was taken back. That says nothing about it: the id is no
// secret of those who could read it, and nobody guesses one.
func (c *collections) refuseNote(w http.ResponseWriter, r *http.Request, reply exchange.Reply, err error) {
	if !errors.Is(err, errTombstone) || accepts(r) != formActivity {
		refuse(w, r, err)
		return
	}
	post, _ := strconv.Atoi(httpserver.Param(r, "post"))
	grave := c.renderer.tombstone(reply, max(post, 1))
	grave.Context = document.ActivityStreams
	body, encodeErr := json.Marshal(grave)
	if encodeErr != nil {
		refuse(w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", activityMediaType+"; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=60")
	header.Set("Vary", "Accept")
	w.WriteHeader(http.StatusGone)
	_, _ = w.Write(body)
}

// whole gives the page of a chain's first post the whole answer.
func (c *collections) whole(r *http.Request, reply exchange.Reply, made note) note {
	if reply.Posts <= 1 || made.ID != c.noteIRI(reply.ID) {
		return made
	}
	all, err := c.renderer.renderParts(reply, 1, c.renderer.knownPeople(r.Context(), reply), withoutAddress)
	if err != nil {
		return made
	}
	return all
}

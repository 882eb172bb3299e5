package activitypub

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	repliesNamespace = "activitypub.replies." // + reply id: note IRI of a question about it → followUp
	followUpLife     = 180 * 24 * time.Hour
	// maxReplies bounds the replies collection of one note: other servers use it to find the next posts of a thread, and
	// each entry costs a read.
	maxReplies = 20
)

// followUp is a question about one of our notes that we answered.
type followUp struct {
	Parent string `json:"parent"` // the note of ours, one of a chain perhaps
	Reply  string `json:"reply"`  // our answer, with which the question is stored
}

// repliesCollection is the Collection of what answers a note (ActivityPub, section 3.1; ActivityStreams Vocabulary, replies).
type repliesCollection struct {
	Context string       `json:"@context,omitempty"`
	ID      string       `json:"id"`
	Type    string       `json:"type"`
	First   *repliesPage `json:"first"`
}

// repliesPage has the ids of notes that everybody may read, each at its author's server. There is no second page.
type repliesPage struct {
	Context string   `json:"@context,omitempty"`
	ID      string   `json:"id,omitempty"`
	Type    string   `json:"type"`
	Next    string   `json:"next,omitempty"`
	PartOf  string   `json:"partOf"`
	Items   []string `json:"items"`
}

// embeddedReplies stands in the note itself, as Mastodon writes it: a reader that finds a first page with members does not
// ask for it at once. It names the next post of a chain and where others are found, so that it is the same for ever.
func (r *renderer) embeddedReplies(note, next string) *repliesCollection {
	id := note + "/replies"
	page := &repliesPage{Type: "CollectionPage", Next: id + "?page=true", PartOf: id, Items: []string{}}
	if next != "" {
		page.Items = append(page.Items, next)
	}
	return &repliesCollection{ID: id, Type: "Collection", First: page}
}

// open says that everybody may read the note.
func (n *note) open() bool {
	return slices.Contains(n.To, document.Public) || slices.Contains(n.Cc, document.Public)
}

// keepFollowUp remembers that a reply answers a question about one of our notes, when both can be read by everybody. What
// was not answered, such as a note that is held for the operator, is shown to nobody.
func (o *outbox) keepFollowUp(ctx context.Context, reply exchange.Reply) error {
	parent, ours := o.replyID(reply.Message.InReplyTo)
	asked, err := readRoute(reply.Route)
	if err != nil || !ours || !openly(asked.Visibility) || !o.published(reply) || reply.Notice != 0 || asked.Note == "" {
		return nil //nolint:nilerr // rendering the reply says that its route cannot be read
	}
	value, err := json.Marshal(followUp{reply.Message.InReplyTo, reply.ID})
	if err != nil {
		return err
	}
	return o.options.State.Put(ctx, repliesNamespace+parent, asked.Note, value, o.now().Add(followUpLife))
}

// serveReplies shows which notes answer a note that everybody may read: the next post of a chain, and what people said to it
// and were answered. Servers complete threads with it.
func (c *collections) serveReplies(w http.ResponseWriter, r *http.Request) {
	if !c.verifier.mayRead(w, r) {
		return
	}
	reply, made, private, err := c.readableNote(r)
	if err == nil && private {
		err = fault.New(fault.NotFound, "no such object")
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	items, err := c.followUps(r.Context(), reply, made)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}
	page := repliesPage{ID: made.Replies.First.Next, Type: "CollectionPage", PartOf: made.Replies.ID, Items: items}
	if r.URL.Query().Get("page") != "" {
		page.Context = document.ActivityStreams
		c.write(w, r, page)
		return
	}
	c.write(w, r, repliesCollection{Context: document.ActivityStreams, ID: made.Replies.ID, Type: "Collection", First: &page})
}

// followUps gives the ids of what answers a note.
func (c *collections) followUps(ctx context.Context, reply exchange.Reply, made note) ([]string, error) {
	items := slices.Clone(made.Replies.First.Items)
	notes, values, err := c.options.State.List(ctx, repliesNamespace+reply.ID, "", maxReplies)
	if err != nil {
		return nil, err
	}
	for i, iri := range notes {
		var kept followUp
		if json.Unmarshal(values[i], &kept) != nil || kept.Parent != made.ID || !c.admits(document.HostOf(iri)) {
			continue
		}
		shown, err := c.stillOpen(ctx, kept.Reply)
		if err != nil {
			return nil, err
		}
		if shown {
			items = append(items, iri)
		}
	}
	return items, nil
}

// stillOpen says that a question was neither taken back nor narrowed by an edit since it was answered.
func (c *collections) stillOpen(ctx context.Context, replyID string) (bool, error) {
	answer, _, err := c.options.Replies.Reply(ctx, replyID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	asked, err := readRoute(answer.Route)
	return err == nil && openly(asked.Visibility) && len(answer.Message.Parts) > 0, nil
}

package activitypub

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const outboxPage = 20

// collections serves what others read of the agents: notes, outboxes, replies and conversations.
type collections struct {
	*site
	verifier *verifier
	outbox   *outbox
	renderer *renderer
}

// collection is an OrderedCollection. Members of followers and following are not shown to anyone.
type collection struct {
	Context      any     `json:"@context"`
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	TotalItems   int64   `json:"totalItems"`
	First        string  `json:"first,omitempty"`
	OrderedItems *[]note `json:"orderedItems,omitempty"`
}

// outboxPageDocument is one page of an outbox.
type outboxPageDocument struct {
	Context      []any            `json:"@context"`
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	PartOf       string           `json:"partOf"`
	Next         string           `json:"next,omitempty"`
	OrderedItems []createActivity `json:"orderedItems"`
}

func (c *collections) serveCollection(w http.ResponseWriter, r *http.Request) {
	agent, found := c.requestedAgent(w, r)
	if !found {
		return
	}

	id, name := c.actorIRI(agent.Name), httpserver.Param(r, "collection")
	if name == "inbox" {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "an inbox is written and not read", http.StatusMethodNotAllowed)
		return
	}
	if !c.verifier.mayRead(w, r) {
		return
	}

	switch name {
	case "outbox":
		c.serveOutbox(w, r, agent)
	case "followers":
		count, err := c.options.State.Count(r.Context(), FollowerNamespace+agent.Name)
		if err != nil {
			refuse(w, r, unavailable(err))
			return
		}
		c.writeCollection(w, r, collection{ID: id + "/followers", TotalItems: count})
	case "following":
		c.writeCollection(w, r, collection{ID: id + "/following"})
	case "featured":
		c.serveFeatured(w, r, agent)
	default:
		refuse(w, r, fault.New(fault.NotFound, "no such collection"))
	}
}

// serveInstanceCollection answers for the server's own actor, which says nothing and follows no one.
func (c *collections) serveInstanceCollection(w http.ResponseWriter, r *http.Request) {
	name := httpserver.Param(r, "collection")
	if name != "outbox" {
		refuse(w, r, fault.New(fault.NotFound, "no such collection"))
		return
	}
	c.writeCollection(w, r, collection{ID: c.instanceIRI() + "/outbox", OrderedItems: &[]note{}})
}

func (c *collections) writeCollection(w http.ResponseWriter, r *http.Request, content collection) {
	if content.Context == nil {
		content.Context = document.ActivityStreams
	}
	content.Type = "OrderedCollection"
	c.write(w, r, content)
}

// serveOutbox shows what everyone may read, newest first.
func (c *collections) serveOutbox(w http.ResponseWriter, r *http.Request, agent exchange.AgentProfile) {
	id, query := c.actorIRI(agent.Name)+"/outbox", r.URL.Query()
	if query.Get("page") == "" {
		count, err := c.options.Replies.CountReplies(r.Context(), agent.Name)
		if err != nil {
			refuse(w, r, unavailable(err))
			return
		}

		c.writeCollection(w, r, collection{ID: id, TotalItems: count, First: id + "?page=true"})
		return
	}

	before := clip.Bytes(query.Get("before"), 64)
	page := outboxPageDocument{Context: noteContext, ID: id + "?page=true", Type: "OrderedCollectionPage", PartOf: id}
	if before != "" {
		page.ID += "&before=" + url.QueryEscape(before)
	}

	entries, next, err := c.outboxEntries(r, agent.Name, before)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}

	if page.OrderedItems = entries; next != "" {
		page.Next = id + "?page=true&before=" + url.QueryEscape(next)
	}
	c.write(w, r, page)
}

// outboxEntries returns at most one page of activities and the id where the next one begins. The posts of a chain stay on
// one page.
func (c *collections) outboxEntries(r *http.Request, agent, before string) (entries []createActivity, next string, err error) {
	replies, err := c.options.Replies.Replies(r.Context(), agent, before, outboxPage+1)
	if err != nil {
		return nil, "", err
	}

	entries = []createActivity{}
	for i, reply := range replies {
		posts := max(reply.Posts, 1)
		if i == outboxPage || len(entries)+posts > outboxPage {
			return entries, replies[i-1].ID, nil
		}
		if !c.published(reply) {
			continue
		}

		people := c.renderer.knownPeople(r.Context(), reply)
		for post := posts; post >= 1; post-- {
			made, err := c.renderer.render(reply, post, people, withoutAddress)
			if err != nil {
				continue // an old row that we can no longer read hides itself, not the whole outbox
			}

			entry := c.renderer.activity(made)
			entry.Context = nil
			entries = append(entries, entry)
		}
	}

	return entries, "", nil
}

// PublicNote is a note as pages and feeds show it. A chain of posts is shown by the first of them.
type PublicNote struct {
	Address   string // of its page
	Published time.Time
	Summary   string // content warning, as text
	Text      string
	HTML      string // sanitized
}

func (c *collections) publicNotes(ctx context.Context, agent string, limit int) (notes []PublicNote, err error) {
	if c.options.AuthorizedFetch {
		return nil, nil
	}
	replies, err := c.options.Replies.Replies(ctx, agent, "", outboxPage)
	if err != nil {
		return nil, err
	}

	for _, reply := range replies {
		if len(notes) == limit {
			break
		}
		if !c.published(reply) {
			continue
		}
		made, err := c.renderer.render(reply, 1, c.renderer.knownPeople(ctx, reply), withoutAddress)
		if err != nil {
			continue // an old row that we can no longer read hides itself, as in the outbox
		}

		content := notetext.Sanitize(made.Content)
		notes = append(notes, PublicNote{
			Address: made.URL, Published: reply.CreatedAt, Summary: made.Summary, HTML: content,
			Text: notetext.Plain(content, notetext.Reader{IsUs: func(string) bool { return false }}),
		})
	}
	return notes, nil
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

// repliesPage has the ids of notes that everyone may read, each at its author's server. There is no second page.
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

// open reports whether everyone may read the note.
func (n *note) open() bool {
	return slices.Contains(n.To, document.Public) || slices.Contains(n.Cc, document.Public)
}

// serveReplies shows which notes answer a note that everyone may read: the next post of a chain, and what people said to it
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

// followUps returns the ids of what answers a note.
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

// stillOpen reports whether a question was neither taken back nor narrowed by an edit since it was answered.
func (c *collections) stillOpen(ctx context.Context, replyID string) (bool, error) {
	answer, _, err := c.options.Replies.Reply(ctx, replyID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	asked, err := readRoute(answer.Route)
	return err == nil && isOpen(asked.Visibility) && len(answer.Message.Parts) > 0, nil
}

// maxConversation bounds the posts that a conversation shows: each of ours costs reads.
const maxConversation = 100

// conversationDocument is a conversation as far as we know it (FEP-7888).
type conversationDocument struct {
	Context      string   `json:"@context"`
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	AttributedTo string   `json:"attributedTo"`
	TotalItems   int      `json:"totalItems"`
	OrderedItems []string `json:"orderedItems"`
}

// serveConversation shows which posts that everyone may read belong to a conversation that we named.
func (c *collections) serveConversation(w http.ResponseWriter, r *http.Request) {
	if !c.verifier.mayRead(w, r) {
		return
	}
	turn := httpserver.Param(r, "turn")
	reply, err := c.options.Replies.Answer(r.Context(), turn)
	if err != nil && !fault.Is(err, fault.NotFound) {
		refuse(w, r, unavailable(err))
		return
	}

	asked, unread := readRoute(reply.Route)
	if err != nil || unread != nil || !isNote(reply) || asked.Context != "" || !c.published(reply) {
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	}

	items, err := c.conversation(r.Context(), reply)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}

	c.write(w, r, conversationDocument{
		Context: document.ActivityStreams, ID: c.conversationIRI(turn), Type: "OrderedCollection", AttributedTo: c.actorIRI(reply.Agent),
		TotalItems: len(items), OrderedItems: items,
	})
}

// conversation lists the question of a reply, the reply's posts, and in the same way every question about them that was
// answered, oldest first.
func (c *collections) conversation(ctx context.Context, first exchange.Reply) ([]string, error) {
	var items []string
	waiting := []exchange.Reply{first}
	for len(waiting) > 0 && len(items) < maxConversation {
		reply := waiting[0]
		waiting = waiting[1:]
		asked, err := readRoute(reply.Route)
		if err != nil || !isOpen(asked.Visibility) || !c.published(reply) || !reply.DeletedAt.IsZero() {
			continue
		}

		if len(reply.Message.Parts) > 0 { // the question was not taken back
			items = append(items, asked.Note)
		}
		for post := 1; post <= max(reply.Posts, 1); post++ {
			items = append(items, c.postIRI(reply.ID, post))
		}

		_, values, err := c.options.State.List(ctx, repliesNamespace+reply.ID, "", maxReplies)
		if err != nil {
			return nil, err
		}

		for _, value := range values {
			var kept followUp
			if json.Unmarshal(value, &kept) != nil {
				continue
			}

			next, _, err := c.options.Replies.Reply(ctx, kept.Reply)
			if err == nil {
				waiting = append(waiting, next)
			} else if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Gone) {
				return nil, err
			}
		}
	}

	return items, nil
}

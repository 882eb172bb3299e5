package activitypub

import (
	"net/http"
	"net/url"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
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

// collection is an OrderedCollection. Members of followers and following are not shown to anybody.
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
	agent, found := c.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, c.noAgent(r.Context(), httpserver.Param(r, "agent")))
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
		count, err := c.options.State.Count(r.Context(), followerNamespace+agent.Name)
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

// serveInstanceCollection answers for the server's own actor, which says nothing and follows nobody.
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

func (s *site) write(w http.ResponseWriter, r *http.Request, content any) {
	if accepts(r) == formNone {
		refuseForm(w)
		return
	}
	doc, err := newDocument("", content)
	if err != nil {
		refuse(w, r, err)
		return
	}
	seconds := 60
	if s.options.AuthorizedFetch {
		seconds = 0 // what one signer may read is for no shared cache
	}
	writeDocument(w, r, doc, seconds)
}

// serveOutbox shows what everybody may read, newest first.
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
	before := document.Clip(query.Get("before"), 64)
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

// outboxEntries gives at most one page of activities and the id where the next one begins. The posts of a chain stay on
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

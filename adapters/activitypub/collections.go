package activitypub

import (
	"context"
	"net/http"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	outboxScan = 100 // newest answers that are looked at for the outbox
	outboxPage = 20
	outboxLife = time.Minute
)

// collection is an OrderedCollection. Members of followers and following are not shown to anybody.
type collection struct {
	Context      string  `json:"@context"`
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	TotalItems   int64   `json:"totalItems"`
	First        string  `json:"first,omitempty"`
	OrderedItems *[]note `json:"orderedItems,omitempty"`
}

// outboxPageDocument is the one page of an outbox: the newest public notes.
type outboxPageDocument struct {
	Context      []any            `json:"@context"`
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	PartOf       string           `json:"partOf"`
	OrderedItems []createActivity `json:"orderedItems"`
}

func (a *Adapter) serveCollection(w http.ResponseWriter, r *http.Request) {
	agent, found := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, fault.New(fault.NotFound, "no such agent"))
		return
	}
	id := a.actorIRI(agent.Name)
	switch name := httpserver.Param(r, "collection"); name {
	case "outbox":
		a.serveOutbox(w, r, agent)
	case "followers":
		count, err := a.options.State.Count(r.Context(), followerNamespace+agent.Name)
		if err != nil {
			refuse(w, r, unavailable(err))
			return
		}
		a.writeCollection(w, r, collection{ID: id + "/followers", TotalItems: count})
	case "following":
		a.writeCollection(w, r, collection{ID: id + "/following"})
	case "featured":
		a.writeCollection(w, r, collection{ID: id + "/featured", OrderedItems: &[]note{}})
	case "inbox":
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "an inbox is written and not read", http.StatusMethodNotAllowed)
	default:
		refuse(w, r, fault.New(fault.NotFound, "no such collection"))
	}
}

// serveInstanceCollection answers for the server's own actor, which says nothing and follows nobody.
func (a *Adapter) serveInstanceCollection(w http.ResponseWriter, r *http.Request) {
	name := httpserver.Param(r, "collection")
	if name != "outbox" {
		refuse(w, r, fault.New(fault.NotFound, "no such collection"))
		return
	}
	a.writeCollection(w, r, collection{ID: a.instanceIRI() + "/outbox", OrderedItems: &[]note{}})
}

func (a *Adapter) writeCollection(w http.ResponseWriter, r *http.Request, content collection) {
	content.Context, content.Type = activityStreams, "OrderedCollection"
	a.write(w, r, content)
}

func (a *Adapter) write(w http.ResponseWriter, r *http.Request, content any) {
	if accepts(r) == formNone {
		refuseForm(w)
		return
	}
	doc, err := newDocument("", content)
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeDocument(w, r, doc, 60)
}

// serveOutbox shows public answers only, newest first. The total counts what the scan finds: the exact number is
// worth no query over all answers.
func (a *Adapter) serveOutbox(w http.ResponseWriter, r *http.Request, agent exchange.AgentProfile) {
	id := a.actorIRI(agent.Name) + "/outbox"
	notes, err := a.publicNotes(r.Context(), agent.Name)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}
	if r.URL.Query().Get("page") == "" {
		a.writeCollection(w, r, collection{ID: id, TotalItems: int64(len(notes)), First: id + "?page=true"})
		return
	}
	page := outboxPageDocument{
		Context: noteContext, ID: id + "?page=true", Type: "OrderedCollectionPage", PartOf: id,
		OrderedItems: notes[:min(len(notes), outboxPage)],
	}
	a.write(w, r, page)
}

func (a *Adapter) publicNotes(ctx context.Context, agent string) ([]createActivity, error) {
	if kept, found := a.outboxes.get(agent, a.now()); found {
		return kept, nil
	}
	replies, err := a.options.Replies.Replies(ctx, agent, "", outboxScan)
	if err != nil {
		return nil, err
	}
	notes := []createActivity{}
	for _, reply := range replies {
		if !a.published(reply) {
			continue
		}
		made, err := a.render(reply, a.knownPeople(ctx, reply), withoutAddress)
		if err != nil {
			continue // an old row that we can no longer read hides itself, not the whole outbox
		}
		entry := a.activity(reply.ID, made)
		entry.Context = nil
		notes = append(notes, entry)
	}
	a.outboxes.put(agent, notes, a.now().Add(outboxLife))
	return notes, nil
}

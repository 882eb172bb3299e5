package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	quoteNamespace   = "activitypub.quote."  // + agent: stamp → quoted
	quotingNamespace = "activitypub.quotes." // + reply id: stamp → quoted; until it is withdrawn
	maxQuotesAtOnce  = 100                   // withdrawn by one attempt at a delivery
)

// quoted is a quote that was allowed.
type quoted struct {
	Reply      string `json:"reply"`
	Target     string `json:"target,omitempty"` // the quoted post of a chain; empty = the first
	Instrument string `json:"instrument"`       // the post that quotes
	Actor      string `json:"actor,omitempty"`  // who quotes
	Inbox      string `json:"inbox,omitempty"`
}

var quoteContext = []any{document.ActivityStreams, map[string]any{
	"QuoteAuthorization": "https://w3id.org/fep/044f#QuoteAuthorization", "QuoteRequest": "https://w3id.org/fep/044f#QuoteRequest",
	"gts":               "https://gotosocial.org/ns#",
	"interactingObject": map[string]string{"@id": "gts:interactingObject", "@type": "@id"},
	"interactionTarget": map[string]string{"@id": "gts:interactionTarget", "@type": "@id"},
}}

// mayQuote says whether the request gets a stamp: a follower quotes, in a post of its own, an answer that everybody may
// read, and the operator lets followers quote.
func (i *interactions) mayQuote(ctx context.Context, in *incoming, reply exchange.Reply) (bool, error) {
	instrument := document.Reference(in.activity["instrument"])
	if i.options.Profile == nil || !i.options.Profile(reply.Agent).QuotesByFans || !i.published(reply) || !reply.DeletedAt.IsZero() ||
		!document.SameOrigin(instrument, in.actor) {
		return false, nil
	}
	_, follows, err := i.options.State.Get(ctx, followerNamespace+reply.Agent, in.actor)
	return follows, err
}

// stampQuote keeps what was allowed and gives the address at which readers' servers check it.
func (i *interactions) stampQuote(ctx context.Context, in *incoming, reply exchange.Reply) (string, error) {
	allowed := quoted{reply.ID, i.quotedPost(in, reply), document.Reference(in.activity["instrument"]), in.actor, in.by.actor.Inbox}
	stamp := ownKeyOf(allowed.Target, allowed.Instrument)[len("sha256:"):]
	if err := i.putJSON(ctx, quotingNamespace+reply.ID, stamp, allowed); err != nil {
		return "", err
	}
	return i.stampIRI(reply.Agent, stamp), i.putJSON(ctx, quoteNamespace+reply.Agent, stamp, allowed)
}

func (i *interactions) stampIRI(agent, stamp string) string { return i.actorIRI(agent) + "/quotes/" + stamp }

// quotedPost is the post of a reply that is quoted: the one that is named, when there is such a one.
func (i *interactions) quotedPost(in *incoming, reply exchange.Reply) string {
	named := document.Reference(in.activity["object"])
	for post := 2; post <= reply.Posts; post++ {
		if named == i.postIRI(reply.ID, post) {
			return named
		}
	}
	return i.noteIRI(reply.ID)
}

// withdrawQuotes tells those who quote an answer that was taken back that they may not any more (FEP-044f): a Delete of the
// stamp. Each is queued before it is forgotten, under an id of its own, so that a crash tells somebody twice and nobody
// never. What is left over a hundred the next delivery withdraws; none of the stamps is served any more in any case.
func (i *interactions) withdrawQuotes(ctx context.Context, reply exchange.Reply) error {
	stamps, values, err := i.options.State.List(ctx, quotingNamespace+reply.ID, "", maxQuotesAtOnce)
	if err != nil {
		return err
	}
	for at, stamp := range stamps {
		var allowed quoted
		if json.Unmarshal(values[at], &allowed) == nil && allowed.Inbox != "" {
			if err := i.withdrawQuote(ctx, reply.Agent, i.stampIRI(reply.Agent, stamp), allowed); err != nil {
				return err
			}
		}
		if err := i.options.State.Delete(ctx, quotingNamespace+reply.ID, stamp); err != nil {
			return err
		}
	}
	return nil
}

func (i *interactions) withdrawQuote(ctx context.Context, agent, stamp string, allowed quoted) error {
	return i.sendLater(ctx, agent, &remoteActor{Actor: document.Actor{ID: allowed.Actor, Inbox: allowed.Inbox}}, struct {
		Context []any    `json:"@context"`
		ID      string   `json:"id"`
		Type    string   `json:"type"`
		Actor   string   `json:"actor"`
		Object  string   `json:"object"`
		To      []string `json:"to"`
	}{quoteContext, stamp + "#delete", "Delete", i.actorIRI(agent), stamp, []string{allowed.Actor}})
}

// serveQuote shows a QuoteAuthorization (FEP-044f) as long as the answer stands.
func (i *interactions) serveQuote(w http.ResponseWriter, r *http.Request) {
	missing := fault.New(fault.NotFound, "no such object")
	agent, found := i.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, i.noAgent(r.Context(), httpserver.Param(r, "agent")))
		return
	}
	if !i.verifier.mayRead(w, r) {
		return
	}
	stamp := httpserver.Param(r, "stamp")
	value, found, err := i.options.State.Get(r.Context(), quoteNamespace+agent.Name, stamp)
	var kept quoted
	switch {
	case err != nil:
		refuse(w, r, unavailable(err))
		return
	case !found || json.Unmarshal(value, &kept) != nil:
		refuse(w, r, missing)
		return
	}
	switch reply, _, err := i.options.Replies.Reply(r.Context(), kept.Reply); {
	case fault.Is(err, fault.NotFound):
		refuse(w, r, missing)
		return
	case err != nil:
		refuse(w, r, unavailable(err))
		return
	case !reply.DeletedAt.IsZero():
		refuse(w, r, fault.New(fault.Gone, "the quoted answer was taken back"))
		return
	}
	actor := i.actorIRI(agent.Name)
	i.write(w, r, authorizationDocument{
		quoteContext, i.stampIRI(agent.Name, stamp), "QuoteAuthorization", actor, kept.Instrument, cmp.Or(kept.Target, i.noteIRI(kept.Reply)),
	})
}

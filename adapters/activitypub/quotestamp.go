package activitypub

import (
	"context"
	"encoding/json"
	"net/http"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const quoteNamespace = "activitypub.quote." // + agent: stamp → quoted

// quoted is a quote that was allowed.
type quoted struct {
	Reply      string `json:"reply"`
	Instrument string `json:"instrument"` // the post that quotes
}

var quoteContext = []any{activityStreams, map[string]any{
	"QuoteAuthorization": "https://w3id.org/fep/044f#QuoteAuthorization", "QuoteRequest": "https://w3id.org/fep/044f#QuoteRequest",
	"gts":               "https://gotosocial.org/ns#",
	"interactingObject": map[string]string{"@id": "gts:interactingObject", "@type": "@id"},
	"interactionTarget": map[string]string{"@id": "gts:interactionTarget", "@type": "@id"},
}}

// mayQuote says whether the request gets a stamp: a follower quotes, in a post of its own, an answer that everybody may
// read, and the operator lets followers quote.
func (a *Adapter) mayQuote(ctx context.Context, in *incoming, reply exchange.Reply) (bool, error) {
	instrument := reference(in.activity["instrument"])
	if a.options.Profile == nil || !a.options.Profile(reply.Agent).QuotesByFans || !a.published(reply) || !reply.DeletedAt.IsZero() ||
		!sameOrigin(instrument, in.actor) {
		return false, nil
	}
	_, follows, err := a.options.State.Get(ctx, followerNamespace+reply.Agent, in.actor)
	return follows, err
}

// stampQuote keeps what was allowed and gives the address at which readers' servers check it.
func (a *Adapter) stampQuote(ctx context.Context, in *incoming, reply exchange.Reply) (string, error) {
	instrument := reference(in.activity["instrument"])
	stamp := ownKeyOf(reply.ID, instrument)[len("sha256:"):]
	err := a.putJSON(ctx, quoteNamespace+reply.Agent, stamp, quoted{reply.ID, instrument})
	return a.actorIRI(reply.Agent) + "/quotes/" + stamp, err
}

// serveQuote shows a QuoteAuthorization (FEP-044f) as long as the answer stands.
func (a *Adapter) serveQuote(w http.ResponseWriter, r *http.Request) {
	missing := fault.New(fault.NotFound, "no such object")
	agent, found := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, a.noAgent(r.Context(), httpserver.Param(r, "agent")))
		return
	}
	if !a.mayRead(w, r) {
		return
	}
	stamp := httpserver.Param(r, "stamp")
	value, found, err := a.options.State.Get(r.Context(), quoteNamespace+agent.Name, stamp)
	var kept quoted
	switch {
	case err != nil:
		refuse(w, r, unavailable(err))
		return
	case !found || json.Unmarshal(value, &kept) != nil:
		refuse(w, r, missing)
		return
	}
	if reply, _, err := a.options.Replies.Reply(r.Context(), kept.Reply); err != nil || !reply.DeletedAt.IsZero() {
		refuse(w, r, missing)
		return
	}
	actor := a.actorIRI(agent.Name)
	a.write(w, r, struct {
		Context      []any  `json:"@context"`
		ID           string `json:"id"`
		Type         string `json:"type"`
		AttributedTo string `json:"attributedTo"`
		Interacting  string `json:"interactingObject"`
		Target       string `json:"interactionTarget"`
	}{quoteContext, actor + "/quotes/" + stamp, "QuoteAuthorization", actor, kept.Instrument, a.noteIRI(kept.Reply)})
}

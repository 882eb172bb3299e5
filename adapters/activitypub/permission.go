package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// interactionRequests are the activities with which servers ask before one of their accounts interacts with a post (GoToSocial,
// interaction controls): type → the authorization that answers it.
var interactionRequests = map[string]string{
	"LikeRequest": "LikeAuthorization", "ReplyRequest": "ReplyAuthorization", "AnnounceRequest": "AnnounceAuthorization",
}

var interactionContext = []any{document.ActivityStreams, map[string]any{
	"gts":         "https://gotosocial.org/ns#",
	"LikeRequest": "gts:LikeRequest", "ReplyRequest": "gts:ReplyRequest", "AnnounceRequest": "gts:AnnounceRequest",
	"LikeAuthorization": "gts:LikeAuthorization", "ReplyAuthorization": "gts:ReplyAuthorization",
	"AnnounceAuthorization": "gts:AnnounceAuthorization",
	"interactingObject":     map[string]string{"@id": "gts:interactingObject", "@type": "@id"},
	"interactionTarget":     map[string]string{"@id": "gts:interactionTarget", "@type": "@id"},
}}

// interactionRequested answers a server that asks whether one of its accounts may like, answer or share one of our posts.
// Everyone may who can read it; without an answer the reader's server would keep the interaction to itself for ever.
func (i *interactions) interactionRequested(ctx context.Context, in *incoming) (string, error) {
	if in.id == "" {
		return outcomeIgnored, nil
	}
	reply, found, err := i.replyAt(ctx, document.Reference(in.activity["object"]))
	if err != nil || !found {
		return outcomeIgnored, err
	}

	kind, instrument := interactionRequests[in.kind], document.Reference(in.activity["instrument"])
	answer := requestAnswer{interactionContext, "Reject", "#rejects/", ""}
	if document.SameOrigin(instrument, in.actor) && i.authorizes(reply, kind, instrument) {
		authorization := i.authorizationIRI(reply, kind, i.quotedPost(in, reply), instrument)
		answer = requestAnswer{interactionContext, "Accept", "#accepts/", authorization}
	}
	return outcomeOf(i.answerRequest(ctx, in, reply, answer))
}

// authorizes reports whether an interaction with a post is allowed. The instrument is the interaction: a Like, a note or an
// Announce. A post that is not for everyone is for its asker's server to like and to answer, and for no one to share.
func (i *interactions) authorizes(reply exchange.Reply, kind, instrument string) bool {
	if !reply.DeletedAt.IsZero() || !i.isRemote(instrument) {
		return false
	}
	if i.published(reply) {
		return true
	}

	asked, err := readRoute(reply.Route)
	return err == nil && kind != "AnnounceAuthorization" && document.SameOrigin(instrument, asked.Actor)
}

// authorizationIRI is where readers' servers check an authorization. It holds everything that the authorization says, so that
// nothing is stored for a stranger's request.
func (i *interactions) authorizationIRI(reply exchange.Reply, kind, target, instrument string) string {
	query := url.Values{"target": {target}, "interacting": {instrument}}
	return i.actorIRI(reply.Agent) + "/authorizations/" + kind + "?" + query.Encode()
}

// serveAuthorization shows an authorization as long as the post stands.
func (i *interactions) serveAuthorization(w http.ResponseWriter, r *http.Request) {
	agent, found := i.requestedAgent(w, r)
	if !found {
		return
	}
	if !i.verifier.mayRead(w, r) {
		return
	}

	kind, query := httpserver.Param(r, "kind"), r.URL.Query()
	target, instrument := query.Get("target"), query.Get("interacting")
	id, ours := i.replyID(target)
	known := slices.Contains([]string{"LikeAuthorization", "ReplyAuthorization", "AnnounceAuthorization"}, kind)
	if !ours || !known {
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	}

	reply, _, err := i.options.Replies.Reply(r.Context(), id)
	switch {
	case fault.Is(err, fault.Gone), err == nil && !reply.DeletedAt.IsZero():
		refuse(w, r, fault.New(fault.Gone, "the post was withdrawn"))
		return
	case fault.Is(err, fault.NotFound), err == nil && (!strings.EqualFold(reply.Agent, agent.Name) || !i.authorizes(reply, kind, instrument)):
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	case err != nil:
		refuse(w, r, unavailable(err))
		return
	}

	i.write(w, r, authorizationDocument{
		interactionContext, i.authorizationIRI(reply, kind, target, instrument), kind, i.actorIRI(agent.Name), instrument, target,
	})
}

// authorizationDocument reports whether an interaction with a post was allowed (FEP-044f; GoToSocial, interaction controls).
type authorizationDocument struct {
	Context      []any  `json:"@context"`
	ID           string `json:"id"`
	Type         string `json:"type"`
	AttributedTo string `json:"attributedTo"`
	Interacting  string `json:"interactingObject"`
	Target       string `json:"interactionTarget"`
}

// requestAnswer is the Accept or Reject of a request to interact.
type requestAnswer struct {
	context []any
	kind    string // Accept or Reject
	name    string // fragment of its id, before the key of the request
	result  string // address of the authorization; empty with Reject
}

// answerRequest tells who asked. The answer to a repeated request has the same id.
func (i *interactions) answerRequest(ctx context.Context, in *incoming, reply exchange.Reply, answer requestAnswer) error {
	type requested struct {
		ID         string `json:"id"`
		Type       string `json:"type"`
		Actor      string `json:"actor"`
		Object     string `json:"object"`
		Instrument string `json:"instrument,omitempty"`
	}
	actor := i.actorIRI(reply.Agent)
	return i.sendLater(ctx, reply.Agent, in.by.actor, struct {
		Context []any     `json:"@context"`
		ID      string    `json:"id"`
		Type    string    `json:"type"`
		Actor   string    `json:"actor"`
		Object  requested `json:"object"`
		Result  string    `json:"result,omitempty"`
		To      []string  `json:"to"`
	}{
		Context: answer.context, ID: actor + answer.name + actorKey(in.id, in.actor), Type: answer.kind, Result: answer.result, Actor: actor,
		To:     []string{in.actor},
		Object: requested{in.id, in.kind, in.actor, i.quotedPost(in, reply), document.Reference(in.activity["instrument"])},
	})
}

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

// mayQuote reports whether the request gets a stamp: a follower quotes, in a post of its own, an answer that everyone may
// read, and the operator lets followers quote.
func (i *interactions) mayQuote(ctx context.Context, in *incoming, reply exchange.Reply) (bool, error) {
	instrument := document.Reference(in.activity["instrument"])
	if i.options.Profile == nil || !i.options.Profile(reply.Agent).QuotesByFans || !i.published(reply) || !reply.DeletedAt.IsZero() ||
		!document.SameOrigin(instrument, in.actor) {
		return false, nil
	}

	_, follows, err := i.options.State.Get(ctx, FollowerNamespace+reply.Agent, in.actor)
	return follows, err
}

// stampQuote keeps what was allowed and returns the address at which readers' servers check it.
func (i *interactions) stampQuote(ctx context.Context, in *incoming, reply exchange.Reply) (string, error) {
	allowed := quoted{reply.ID, i.quotedPost(in, reply), document.Reference(in.activity["instrument"]), in.actor, in.by.actor.Inbox}
	stamp := actorKey(allowed.Target, allowed.Instrument)[len("sha256:"):]
	if err := i.putJSON(ctx, quotingNamespace+reply.ID, stamp, allowed); err != nil {
		return "", err
	}
	return i.stampIRI(reply.Agent, stamp), i.putJSON(ctx, quoteNamespace+reply.Agent, stamp, allowed)
}

func (i *interactions) stampIRI(agent, stamp string) string {
	return i.actorIRI(agent) + "/quotes/" + stamp
}

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
// stamp. Each is queued before it is forgotten, under an id of its own, so that after a crash some are told twice and none is
// left out. What is left over a hundred the next delivery withdraws; none of the stamps is served any more in any case.
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
	agent, found := i.requestedAgent(w, r)
	if !found {
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
		refuse(w, r, fault.New(fault.Gone, "the quoted answer was withdrawn"))
		return
	}

	actor := i.actorIRI(agent.Name)
	i.write(w, r, authorizationDocument{
		quoteContext, i.stampIRI(agent.Name, stamp), "QuoteAuthorization", actor, kept.Instrument, cmp.Or(kept.Target, i.noteIRI(kept.Reply)),
	})
}

// quoteRequested refuses to be quoted (FEP-044f), unless the operator lets followers quote: an answer was written for its
// asker. A quote all the same is without our stamp, which readers' servers look for.
func (i *interactions) quoteRequested(ctx context.Context, in *incoming) (string, error) {
	if in.id == "" {
		return outcomeIgnored, nil
	}
	reply, found, err := i.replyAt(ctx, document.Reference(in.activity["object"]))
	if err != nil || !found {
		return outcomeIgnored, err
	}

	allowed, err := i.mayQuote(ctx, in, reply)
	if err != nil {
		return "", unavailable(err)
	}

	answer := requestAnswer{quoteContext, "Reject", "#rejects/", ""}
	if allowed {
		stamp, err := i.stampQuote(ctx, in, reply)
		if err != nil {
			return "", unavailable(err)
		}
		answer = requestAnswer{quoteContext, "Accept", "#accepts/", stamp}
	}

	return outcomeOf(i.answerRequest(ctx, in, reply, answer))
}
